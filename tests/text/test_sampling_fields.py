"""The sampling fields beyond the common ones: their rules, and what the engine gets of them."""

from collections.abc import Callable

import msgspec
import pytest

from umbel_engine import RepetitionDetection
from umbel_engine.tensors import token_id_rows
from umbel_engine.wire import SamplingParams
from umbel_text.defaults import SamplingDefaults
from umbel_text.errors import InvalidRequestError
from umbel_text.lowering import lower
from umbel_text.model import TextModel
from umbel_text.request import SamplingOptions, TextRequest
from umbel_text.sampling import resolve
from umbel_text.tokenizer import Tokenizer

VOCABULARY_SIZE = 2000
PROMPT = [5, 6, 7]

Params = Callable[..., SamplingParams]
Fault = Callable[..., InvalidRequestError]


@pytest.fixture
def params(byte_level: Tokenizer) -> Params:
    """Give what the engine gets of these options."""

    def params(n: int = 1, max_logprobs: int = 20, **options: object) -> SamplingParams:
        model = TextModel(byte_level, 32, VOCABULARY_SIZE, SamplingDefaults(), max_logprobs)
        sampling = SamplingOptions(**options)
        request = TextRequest(request_id="x", prompt=PROMPT, sampling=sampling)
        return lower(request, n, model).sampling_params

    return params


@pytest.fixture
def fault(params: Params) -> Fault:
    """Give what these options are refused with."""

    def fault(**options: object) -> InvalidRequestError:
        with pytest.raises(InvalidRequestError) as caught:
            params(**options)
        return caught.value

    return fault


def test_every_field_reaches_the_engine(params: Params) -> None:
    detection = RepetitionDetection(max_pattern_size=8, min_pattern_size=2, min_count=3)
    options: dict[str, object] = {
        "prompt_logprobs": 3,
        "logprob_token_ids": [4, 2, 4],
        "allowed_token_ids": [9, 8],
        "repetition_detection": detection,
        "watermarking": False,
        "routed_experts_prompt_start": 2,
        "extra_args": {"a": 1},
        "prompt_logprob_start": 1,
    }
    rows = [[4, 5]]
    sent = params(**options, prompt_logprob_token_ids=rows)
    assert sent.prompt_logprob_token_ids == token_id_rows(rows)
    for name, value in options.items():
        assert getattr(sent, name) == value
    assert sent.logprobs is None


def test_what_is_not_asked_for_is_left_to_the_engine(params: Params) -> None:
    sent = params()
    for name in (
        "prompt_logprobs",
        "logprob_token_ids",
        "allowed_token_ids",
        "bad_words_token_ids",
        "repetition_detection",
        "structured_outputs",
        "extra_args",
        "thinking_token_budget",
    ):
        assert getattr(sent, name) is None
    assert (sent.watermarking, sent.routed_experts_prompt_start) == (True, 0)
    assert params(logprob_token_ids=[]).logprob_token_ids is None


# Log-probabilities of the prompt, and of tokens that are named.


@pytest.mark.parametrize("count", [0, 20])
def test_as_many_log_probabilities_of_the_prompt_as_allowed_are_taken(
    params: Params, count: int
) -> None:
    assert params(prompt_logprobs=count).prompt_logprobs == count


def test_log_probabilities_of_the_whole_vocabulary_need_no_limit(
    params: Params, fault: Fault
) -> None:
    assert params(prompt_logprobs=-1, max_logprobs=-1).prompt_logprobs == -1
    error = fault(prompt_logprobs=-1)
    assert str(error) == (
        "Requested prompt logprobs of 2000, which is greater than max allowed: 20"
    )
    assert (error.parameter, error.value) == ("prompt_logprobs", 2000)


def test_a_negative_number_of_them_is_refused(fault: Fault) -> None:
    error = fault(prompt_logprobs=-2)
    assert str(error) == "prompt_logprobs must be non-negative or -1, got -2."
    assert (error.parameter, error.value) == ("prompt_logprobs", -2)


@pytest.mark.parametrize(
    ("token_ids", "logprobs", "message", "value"),
    [
        (
            [1] * 129,
            None,
            "Requested logprob_token_ids of length 129, which is greater than max allowed: 128",
            129,
        ),
        (
            [1, -1, VOCABULARY_SIZE, 2**70],
            None,
            f"token_id(s) [-1, 2000, {2**70}] in logprob_token_ids contain out-of-vocab token ids. "
            "Vocabulary size: 2000",
            [-1, 2000, 2**70],
        ),
        (
            [1, 2],
            3,
            "When both logprobs and logprob_token_ids are set, logprobs must equal "
            "len(logprob_token_ids). Got logprobs=3, len(logprob_token_ids)=2.",
            2,
        ),
    ],
)
def test_tokens_that_cannot_be_named_are_refused(
    fault: Fault, token_ids: list[int], logprobs: int | None, message: str, value: object
) -> None:
    error = fault(logprob_token_ids=token_ids, logprobs=logprobs)
    assert str(error) == message
    assert (error.parameter, error.value) == ("logprob_token_ids", value)


def test_128_tokens_can_be_named_whatever_the_limit_on_logprobs(params: Params) -> None:
    assert params(logprob_token_ids=[1] * 128, max_logprobs=0).logprob_token_ids == [1] * 128
    assert params(logprob_token_ids=[1, 2], logprobs=2).logprob_token_ids == [1, 2]


def test_named_tokens_are_reported_with_each_sampled_one() -> None:
    def number(**options: object) -> int | None:
        return resolve(SamplingOptions(**options), SamplingDefaults(), 16).num_logprobs

    assert number() is None
    assert number(logprobs=0) == 0
    assert number(logprob_token_ids=[4, 5, 6]) == 3


# What may be sampled.


@pytest.mark.parametrize(
    ("token_ids", "message", "value"),
    [
        ([], "allowed_token_ids is not None and empty!", []),
        (
            [1, -1, VOCABULARY_SIZE],
            "allowed_token_ids contains out-of-vocab token id!",
            [-1, VOCABULARY_SIZE],
        ),
        ([1] * 1025, "allowed_token_ids must have at most 1024 tokens, got 1025.", 1025),
    ],
)
def test_tokens_that_cannot_be_allowed_are_refused(
    fault: Fault, token_ids: list[int], message: str, value: object
) -> None:
    error = fault(allowed_token_ids=token_ids)
    assert str(error) == message
    assert (error.parameter, error.value) == ("allowed_token_ids", value)


def test_1024_tokens_can_be_allowed(params: Params) -> None:
    assert params(allowed_token_ids=[1] * 1024).allowed_token_ids == [1] * 1024


# Repetition.


SIZES = (
    "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= max_pattern_size. "
    "Set both to 0 to disable repetitive pattern detection."
)
COUNT = (
    "min_count must be >= 2 to detect repetitive patterns in engine output. If you do not wish to "
    "detect repetitive patterns, set max_pattern_size to 0."
)


@pytest.mark.parametrize(
    ("most", "least", "count", "message"),
    [
        (-1, 0, 2, SIZES),
        (2, -1, 2, SIZES),
        (2, 3, 2, SIZES),
        (2, 1, 1, COUNT),
        (2, 1, -5, COUNT),
        (2**31, 1, 2, "repetition_detection.max_pattern_size must be less than 2**31."),
        (2, 1, 2**31, "repetition_detection.min_count must be less than 2**31."),
        (0, 0, -(2**63) - 1, "repetition_detection.min_count must be at least -2**63."),
    ],
)
def test_sizes_that_describe_no_repetition_are_refused(
    fault: Fault, most: int, least: int, count: int, message: str
) -> None:
    error = fault(repetition_detection=RepetitionDetection(most, least, count))
    assert (str(error), error.parameter) == (message, None)


@pytest.mark.parametrize("sizes", [(0, 0, 0), (0, 0, 1), (1, 1, 2), (2**31 - 1, 0, 2**31 - 1)])
def test_sizes_at_their_limits_are_taken(params: Params, sizes: tuple[int, int, int]) -> None:
    detection = RepetitionDetection(*sizes)
    assert params(repetition_detection=detection).repetition_detection == detection


# Thinking.


@pytest.mark.parametrize("budget", [0, 5, 2**70])
def test_a_budget_for_thinking_is_refused_where_nothing_tells_what_thinking_is(
    fault: Fault, budget: int
) -> None:
    error = fault(thinking_token_budget=budget)
    assert str(error) == (
        "thinking_token_budget is set but reasoning_config is not configured. Please set "
        "--reasoning-parser and/or --reasoning-config to use thinking_token_budget."
    )
    assert error.parameter is None


def test_an_unlimited_budget_is_none(params: Params, fault: Fault) -> None:
    assert params(thinking_token_budget=-1).thinking_token_budget is None
    error = fault(thinking_token_budget=-2)
    assert str(error) == (
        "`thinking_token_budget` must be a non-negative integer or -1 for unlimited."
    )
    assert (error.parameter, error.value) == ("thinking_token_budget", -2)


# Watermarks and experts.


@pytest.mark.parametrize(("asked", "sent"), [(None, True), (True, True), (False, False)])
def test_a_watermark_is_there_unless_it_is_refused(
    params: Params, asked: bool | None, sent: bool
) -> None:
    assert params(watermarking=asked).watermarking is sent


@pytest.mark.parametrize("start", [-1, 4, 2**70])
def test_experts_start_within_the_prompt(params: Params, fault: Fault, start: int) -> None:
    assert params(routed_experts_prompt_start=3).routed_experts_prompt_start == 3
    error = fault(routed_experts_prompt_start=start)
    assert str(error) == (
        "routed_experts_prompt_start must be between 0 and the prompt length (3), inclusive."
    )
    assert (error.parameter, error.value) == ("routed_experts_prompt_start", start)


def test_faults_are_told_in_the_order_of_vllm(fault: Fault) -> None:
    faults: dict[str, tuple[object, str]] = {
        "logit_bias": ({"a": 1.0}, "logit_bias contains key(s)"),
        "repetition_detection": (RepetitionDetection(-1, 0, 2), "max_pattern_size"),
        "extra_args": ({"a": 2**64}, "extra_args integers"),
        "presence_penalty": (9.0, "presence_penalty must be"),
        "prompt_logprobs": (-2, "prompt_logprobs must be"),
        "bad_words": ([""], "bad_words cannot contain"),
        "logprobs": (21, "Requested sample logprobs"),
        "logprob_token_ids": ([-1], "token_id(s) [-1] in logprob_token_ids"),
        "stop_token_ids": ([-1], "token_id(s) [-1] in stop_token_ids"),
        "allowed_token_ids": ([], "allowed_token_ids is not None and empty!"),
        "thinking_token_budget": (1, "thinking_token_budget is set but"),
        "routed_experts_prompt_start": (9, "routed_experts_prompt_start must be"),
    }
    options = {name: value for name, (value, _) in faults.items()}
    for name, (_, message) in faults.items():
        assert str(fault(**options)).startswith(message)
        del options[name]


# Prompt scores.


@pytest.mark.parametrize(
    ("rows", "message", "value"),
    [
        ([], "must be a non-empty integer array of shape [num_rows, num_ids].", "list"),
        ([[], []], "must be a non-empty integer array of shape [num_rows, num_ids].", "list"),
        (
            [[1]] * 32,
            "has 32 rows, but a prompt has at most 31 scored rows (max_model_len - 1).",
            32,
        ),
        ([[1], [2**63]], "must contain integer token ids.", msgspec.UNSET),
        ([[1], [2000]], "Vocabulary size: 2000", [1, 2000]),
        ([[1], [-2, 4]], "Vocabulary size: 2000", [-2, 4]),
        (
            [[1]],
            "has 1 rows, but the prompt has 2 scored rows (prompt_len - 1 - prompt_logprob_start).",
            1,
        ),
    ],
)
def test_rows_to_score_are_refused_in_vllms_words(
    fault: Fault, rows: list[list[int]], message: str, value: object
) -> None:
    error = fault(prompt_logprob_token_ids=rows)
    assert str(error).startswith("prompt_logprob_token_ids ")
    assert str(error).endswith(message)
    assert (error.parameter, error.value) == ("prompt_logprob_token_ids", value)


def test_rows_to_score_are_as_wide_as_log_probabilities_may_be(fault: Fault) -> None:
    assert str(fault(prompt_logprob_token_ids=[[1], [1, 2, 3]], max_logprobs=2)) == (
        "Requested 3 token ids per row in prompt_logprob_token_ids, which is greater than max "
        "allowed: 2. Set max_logprobs (--max-logprobs) to at least 3."
    )


def test_where_scores_start_is_checked(params: Params, fault: Fault) -> None:
    assert str(fault(prompt_logprob_start=1)) == (
        "prompt_logprob_start requires prompt_logprob_token_ids."
    )
    negative = fault(prompt_logprob_token_ids=[[1], [2]], prompt_logprob_start=-1)
    assert str(negative) == "prompt_logprob_start must be non-negative."
    # -1 stands for no token, and a short row is filled up with it.
    sent = params(prompt_logprob_token_ids=[[-1]], prompt_logprob_start=1)
    assert sent.prompt_logprob_start == 1
    beyond = fault(prompt_logprob_token_ids=[[1]], prompt_logprob_start=9)
    assert "the prompt has 0 scored rows" in str(beyond)
