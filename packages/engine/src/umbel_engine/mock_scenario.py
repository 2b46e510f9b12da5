"""Scenarios of the mock engine command: a JSON list of rules, the first that matches answers.

A rule matches when everything that it names does, so one that names nothing matches always:

- `prompt_token_ids`: the whole prompt;
- `prompt_contains`: token ids that stand in the prompt one after the other;
- `request_id`: the caller's id, with `*` and `?`;
- `child`: the index of the sample among its siblings.

What it answers:

- `token_ids`: these, cut at max_tokens; left out, random ones up to max_tokens;
- `finish` ("stop") and `stop_reason` (null), when `token_ids` were not cut;
- `eos_after`: random ones, then the end-of-sequence token after so many (min_tokens at least);
- `error`: {"message", "code", "retryable"} instead of any token;
- `cached_tokens` (0): how much of the prompt was in the prefix cache;
- `delay_steps` (0): how many engine steps pass before the first token;
- `kv_transfer_params`: sent with the last token.

For example::

    [{"child": 1, "error": {"message": "out of memory"}},
     {"prompt_contains": [42], "token_ids": [5, 6, 7], "finish": "stop"},
     {"eos_after": 10, "cached_tokens": 16}]
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from umbel_engine.mock_script import child_index
from umbel_engine.wire import EngineCoreRequest, FinishReason, RequestFault


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a request is answered like this; see the module."""

    prompt_token_ids: list[int] | None = None
    prompt_contains: list[int] | None = None
    request_id: str | None = None
    child: int | None = None
    token_ids: list[int] | None = None
    finish: FinishReason = "stop"
    stop_reason: int | str | None = None
    eos_after: int | None = None
    error: RequestFault | None = None
    cached_tokens: int = 0
    delay_steps: int = 0
    kv_transfer_params: dict[str, object] | None = None

    def __post_init__(self) -> None:
        if self.token_ids is not None and not self.token_ids:
            raise ValueError("token_ids must not be empty")
        if self.cached_tokens < 0 or self.delay_steps < 0 or (self.eos_after or 0) < 0:
            raise ValueError("numbers must not be negative")

    def matches(self, request: EngineCoreRequest) -> bool:
        """Tell whether the rule is for this request."""
        prompt = request.prompt_token_ids or []
        return (
            (self.prompt_token_ids is None or prompt == self.prompt_token_ids)
            and (self.prompt_contains is None or _contains(prompt, self.prompt_contains))
            and (self.child is None or child_index(request) == self.child)
            and (
                self.request_id is None
                or fnmatchcase(request.external_req_id or request.request_id, self.request_id)
            )
        )


RANDOM = Rule()
"""What a request gets that no rule is for: random tokens up to max_tokens."""


class Scenario:
    """The rules, in the order in which they are tried."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = rules

    @classmethod
    def read(cls, path: Path) -> "Scenario":
        """Read a JSON file; raises OSError or ValueError."""
        try:
            return cls(msgspec.json.decode(path.read_bytes(), type=list[Rule]))
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path}: {error}") from error

    def rule(self, request: EngineCoreRequest) -> Rule:
        """Give the rule that answers a request."""
        return next((rule for rule in self._rules if rule.matches(request)), RANDOM)


def _contains(prompt: Sequence[int], wanted: Sequence[int]) -> bool:
    count = len(wanted)
    return any(prompt[start : start + count] == wanted for start in range(len(prompt) - count + 1))
