"""What a completion repeats of its prompts: their texts, and their log-probabilities."""

from collections.abc import Sequence

import msgspec

from umbel_engine import Logprobs
from umbel_server.responses.logprobs import prompt_logprobs
from umbel_text import PositionLogprobs, Tokenizer, TokenLogprob, decode_prompt_logprobs

NULL = msgspec.Raw(b"null")


class Echo:
    """The prompts of one answer, as its choices show them.

    `texts` has what stands before the choices of each prompt, None when nothing does.  With
    `prompt_only` nothing but that shows: the engine had to generate a token that nobody asked for.
    `num_prompt_logprobs` is how many log-probabilities per prompt token were asked for, None for
    none; siblings have the same, so the first that are seen count for all.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompts: Sequence[list[int]],
        texts: Sequence[str] | None = None,
        prompt_only: bool = False,
        num_prompt_logprobs: int | None = None,
    ) -> None:
        self.is_on = texts is not None
        self.prompt_only = prompt_only
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._texts = texts
        self._number = num_prompt_logprobs
        self._seen: dict[int, list[PositionLogprobs | None]] = {}
        # Every choice repeats the field, so it is encoded once for all of a prompt.
        self._encoded: dict[int, msgspec.Raw] = {}

    def see(self, prompt: int, logprobs: Logprobs | None) -> None:
        """Take in the log-probabilities of a prompt, if it is the first time."""
        if self._number is None or prompt in self._seen:
            return
        self._seen[prompt] = decode_prompt_logprobs(self._tokenizer, logprobs, self._number)

    def text(self, prompt: int) -> str:
        """Give what stands before a choice of this prompt."""
        return self._texts[prompt] if self._texts is not None else ""

    def positions(self, prompt: int) -> list[PositionLogprobs]:
        """Give the positions of an echoed prompt that something was predicted for."""
        if not self.is_on:
            return []
        return [position for position in self._seen.get(prompt, ()) if position is not None]

    def first_token(self, prompt: int) -> TokenLogprob | None:
        """Give the token of an echoed prompt that nothing was predicted for."""
        if not self.is_on or prompt not in self._seen:
            return None
        token_id = self._prompts[prompt][0]
        text = self._tokenizer.decode([token_id], skip_special_tokens=False)
        return TokenLogprob(token_id, 0.0, 0, text)

    def prompt_logprobs(self, prompt: int) -> msgspec.Raw:
        """Give the log-probabilities of a prompt for its field of a choice, as JSON."""
        if prompt not in self._seen:
            return NULL
        if prompt not in self._encoded:
            field = prompt_logprobs(self._seen[prompt])
            self._encoded[prompt] = msgspec.Raw(msgspec.json.encode(field))
        return self._encoded[prompt]
