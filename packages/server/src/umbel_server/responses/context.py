"""What the parts of one answer have in common."""

import msgspec

from umbel_engine import PrefillStats
from umbel_llm import RequestTiming
from umbel_server.responses.logprobs import Display
from umbel_server.usage import PromptTokensDetails


class AnswerContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an answer before its first token.

    `created` is in seconds of the wall clock.  `prompt_token_ids` has one prompt per fan-out; a
    choice belongs to the prompt `index // n`.  `logprobs` says how they are shown, None when none
    were asked for.  `prompt_text` is the rendered prompt where it is to be returned.
    `prompt_details` and `timing` say whether the server reports them, and `reasoning_details`
    whether it tells how many tokens were reasoning.  `is_parsed` says that parsers look for
    reasoning or calls, `hides_token_ids` that these would tell of reasoning that is
    hidden, `forces_calls` that a tool is to be called, `names_tool` that the request names it.
    """

    id: str
    created: int
    model: str
    fingerprint: str | None
    n: int
    prompt_token_ids: list[list[int]]
    logprobs: Display | None = None
    prompt_text: str | None = None
    return_token_ids: bool = False
    return_weight_versions: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    prompt_details: bool = False
    timing: bool = False
    is_parsed: bool = False
    hides_token_ids: bool = False
    reasoning_details: bool = False
    forces_calls: bool = False
    names_tool: bool = False

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all prompts, each counted once."""
        return sum(len(prompt) for prompt in self.prompt_token_ids)


class TimingMetrics(msgspec.Struct, frozen=True):
    """The timing of a request with a single sample, in milliseconds and tokens per second."""

    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None
    queue_time_ms: float | None = None
    mean_itl_ms: float | None = None
    tokens_per_second: float | None = None
    speculative_decoding: None = None


def timing_metrics(context: AnswerContext, timing: RequestTiming | None) -> TimingMetrics | None:
    """Give the timing that an answer reports, None where it reports none.

    It describes one sample, so there is none for n > 1 or several prompts.
    """
    if not context.timing or timing is None or context.n > 1 or len(context.prompt_token_ids) > 1:
        return None
    return TimingMetrics(
        timing.time_to_first_token_ms,
        timing.generation_time_ms,
        timing.queue_time_ms,
        timing.mean_itl_ms,
        timing.tokens_per_second,
    )


def chat_prompt_details(
    context: AnswerContext, prefill: PrefillStats | None
) -> PromptTokensDetails | None:
    """Give where the prompt of a chat came from, if the server reports it."""
    if not context.prompt_details or prefill is None:
        return None
    return PromptTokensDetails(prefill.num_cached_tokens, prefill.num_cache_creation_tokens)


def completion_prompt_details(
    context: AnswerContext, prefill: PrefillStats | None
) -> PromptTokensDetails | None:
    """Give where the prompt of a completion came from; vLLM tells the cached tokens only."""
    if not context.prompt_details or prefill is None:
        return None
    return PromptTokensDetails(prefill.num_cached_tokens)
