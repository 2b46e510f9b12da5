import math

import msgspec
import pytest

from umbel_text.defaults import SamplingDefaults
from umbel_text.errors import InvalidRequestError
from umbel_text.request import SamplingOptions
from umbel_text.sampling import (
    ResolvedSampling,
    check_greedy,
    check_vocabulary,
    resolve,
    resolve_max_tokens,
)

NEUTRAL = SamplingDefaults()
NAN, INF = math.nan, math.inf
UNSET = msgspec.UNSET


def resolved(
    defaults: SamplingDefaults = NEUTRAL, max_tokens: int = 16, **options: object
) -> ResolvedSampling:
    return resolve(msgspec.convert(options, SamplingOptions), defaults, max_tokens)


def fault(
    defaults: SamplingDefaults = NEUTRAL, max_tokens: int = 16, **options: object
) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        resolved(defaults, max_tokens, **options)
    return caught.value


# What breaks a rule.


@pytest.mark.parametrize(
    ("options", "message", "parameter"),
    [
        ({"presence_penalty": 2.1}, "presence_penalty must be in [-2, 2], got 2.1.", None),
        ({"presence_penalty": -3.0}, "presence_penalty must be in [-2, 2], got -3.0.", None),
        ({"presence_penalty": NAN}, "presence_penalty must be in [-2, 2], got nan.", None),
        ({"frequency_penalty": 2.1}, "frequency_penalty must be in [-2, 2], got 2.1.", None),
        ({"frequency_penalty": NAN}, "frequency_penalty must be in [-2, 2], got nan.", None),
        (
            {"repetition_penalty": NAN},
            "repetition_penalty must be a finite number, got nan.",
            None,
        ),
        (
            {"repetition_penalty": INF},
            "repetition_penalty must be a finite number, got inf.",
            None,
        ),
        (
            {"repetition_penalty": 0.0},
            "repetition_penalty must be greater than zero, got 0.0.",
            None,
        ),
        (
            {"repetition_penalty": -1.5},
            "repetition_penalty must be greater than zero, got -1.5.",
            None,
        ),
        ({"temperature": NAN}, "temperature must be a finite number, got nan.", "temperature"),
        ({"temperature": INF}, "temperature must be a finite number, got inf.", "temperature"),
        ({"temperature": -INF}, "temperature must be a finite number, got -inf.", "temperature"),
        ({"temperature": -0.5}, "temperature must be non-negative, got -0.5.", "temperature"),
        ({"temperature": 2.5}, "temperature must be in [0, 2], got 2.5.", "temperature"),
        ({"top_p": 0.0}, "top_p must be in (0, 1], got 0.0.", "top_p"),
        ({"top_p": 1.5}, "top_p must be in (0, 1], got 1.5.", "top_p"),
        ({"top_p": NAN}, "top_p must be in (0, 1], got nan.", "top_p"),
        ({"top_k": -2}, "top_k must be 0 (disable), or at least 1, got -2.", None),
        ({"min_p": 1.5}, "min_p must be in [0, 1], got 1.5.", None),
        ({"min_p": -0.1}, "min_p must be in [0, 1], got -0.1.", None),
        ({"min_p": NAN}, "min_p must be in [0, 1], got nan.", None),
        (
            {"min_tokens": -1},
            "min_tokens must be greater than or equal to 0, got -1.",
            None,
        ),
        (
            {"min_tokens": 17},
            "min_tokens must be less than or equal to max_tokens=16, got 17.",
            None,
        ),
        ({"logprobs": -2}, "logprobs must be non-negative or -1, got -2.", "logprobs"),
        ({"stop": ["a", ""]}, "stop cannot contain an empty string.", None),
    ],
)
def test_a_value_out_of_range_is_refused_in_the_words_of_vllm(
    options: dict[str, object], message: str, parameter: str | None
) -> None:
    error = fault(**options)
    assert str(error) == message
    assert error.parameter == parameter
    if parameter is None:
        assert error.value is UNSET
    else:
        assert repr(error.value) == repr(options[parameter])


@pytest.mark.parametrize("max_tokens", [0, -5])
def test_an_output_limit_without_room_is_refused(max_tokens: int) -> None:
    error = fault(max_tokens=max_tokens)
    assert str(error) == f"max_tokens must be at least 1, got {max_tokens}."
    assert (error.parameter, error.value) == ("max_tokens", max_tokens)


def test_keys_of_logit_bias_that_are_no_numbers_are_refused_all_together() -> None:
    error = fault(logit_bias={"a": 1.0, "5": 1.0, "": 2.0, "1.5": 0.0})
    assert str(error) == (
        "logit_bias contains key(s) that cannot be converted to integer token IDs: ['a', '', '1.5']"
    )
    assert (error.parameter, error.value) == ("logit_bias", ["a", "", "1.5"])


@pytest.mark.parametrize(
    "seed", [2**63, -(2**63) - 1, 2**64, 10**30], ids=["high", "low", "unsigned", "huge"]
)
def test_a_seed_that_is_no_64_bit_number_is_refused(seed: int) -> None:
    error = fault(seed=seed)
    assert str(error) == f"seed must be in [-2**63, 2**63 - 1], got {seed}."
    assert error.parameter == "seed"


ALL_FAULTS: dict[str, object] = {
    "logit_bias": {"a": 1.0},
    "presence_penalty": 9.0,
    "frequency_penalty": 9.0,
    "repetition_penalty": 0.0,
    "temperature": -1.0,
    "top_p": 7.0,
    "top_k": -5,
    "min_p": 7.0,
    "max_tokens": 0,
    "min_tokens": -1,
    "logprobs": -2,
    "stop": [""],
}
"""A fault in every field, in the order in which they are looked for."""


def test_the_first_fault_in_the_order_of_vllm_is_told() -> None:
    remaining = dict(ALL_FAULTS)
    max_tokens = 0
    for name in ALL_FAULTS:
        options = {key: value for key, value in remaining.items() if key != "max_tokens"}
        assert str(fault(max_tokens=max_tokens, **options)).startswith(name)
        del remaining[name]
        if name == "max_tokens":
            max_tokens = 16
    assert resolved()


@pytest.mark.parametrize(
    ("options", "max_tokens", "message"),
    [
        ({"temperature": 0.0, "top_p": 2.0}, 16, "top_p must be in (0, 1], got 2.0."),
        ({"temperature": 0.0}, 0, "max_tokens must be at least 1, got 0."),
        (
            {"temperature": -1.0, "presence_penalty": 9.0},
            16,
            "presence_penalty must be in [-2, 2], got 9.0.",
        ),
        ({"top_k": -5, "top_p": 7.0}, 16, "top_p must be in (0, 1], got 7.0."),
        ({"min_tokens": 3}, 2, "min_tokens must be less than or equal to max_tokens=2, got 3."),
    ],
)
def test_faults_of_a_request_with_several_come_in_the_order_that_was_observed(
    options: dict[str, object], max_tokens: int, message: str
) -> None:
    assert str(fault(max_tokens=max_tokens, **options)) == message


def test_values_at_their_limits_are_taken() -> None:
    for options in (
        {"presence_penalty": -2.0, "frequency_penalty": 2.0, "repetition_penalty": 1e-9},
        {"temperature": 2.0, "top_p": 1.0, "top_k": -1, "min_p": 1.0},
        {"top_p": 1e-9, "top_k": 1, "min_p": 0.0, "min_tokens": 16, "logprobs": -1},
        {"logprobs": 0, "min_tokens": 0, "seed": -(2**63)},
        {"seed": 2**63 - 1},
    ):
        sampling = resolved(**options)
        for name, value in options.items():
            assert getattr(sampling, name) == value


# Defaults.


def test_what_a_request_leaves_open_is_neutral() -> None:
    assert resolved() == ResolvedSampling(
        presence_penalty=0.0,
        frequency_penalty=0.0,
        repetition_penalty=1.0,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        seed=None,
        stop=[],
        stop_token_ids=[],
        ignore_eos=False,
        max_tokens=16,
        min_tokens=0,
        logprobs=None,
        prompt_logprobs=None,
        logprob_token_ids=None,
        prompt_logprob_token_ids=None,
        prompt_logprob_start=None,
        skip_special_tokens=True,
        spaces_between_special_tokens=True,
        include_stop_str_in_output=False,
        logit_bias=None,
        allowed_token_ids=None,
        bad_words=[],
        structured_outputs=None,
        repetition_detection=None,
        thinking_token_budget=None,
        watermarking=True,
        routed_experts_prompt_start=0,
        extra_args=None,
    )


DEFAULTS = {
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.1,
    "temperature": 0.6,
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.1,
    "skip_special_tokens": False,
}
REQUESTED = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "skip_special_tokens": True,
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_models_default_holds_where_a_request_is_silent_and_nowhere_else(name: str) -> None:
    defaults = msgspec.convert({name: DEFAULTS[name]}, SamplingDefaults)
    assert getattr(resolved(defaults), name) == DEFAULTS[name]
    assert getattr(resolved(defaults, **{name: None}), name) == DEFAULTS[name]
    assert getattr(resolved(defaults, **{name: REQUESTED[name]}), name) == REQUESTED[name]


def test_a_default_out_of_range_is_refused_like_a_requested_value() -> None:
    assert str(fault(SamplingDefaults(top_p=2.0))) == "top_p must be in (0, 1], got 2.0."
    assert resolved(SamplingDefaults(top_p=2.0), top_p=0.5).top_p == 0.5


@pytest.mark.parametrize(
    ("requested", "default", "cap", "expected"),
    [
        (None, None, None, 60),  # whatever the context leaves
        (5, None, None, 5),
        (100, None, None, 60),
        (None, 7, None, 7),
        (None, 100, None, 60),
        (9, 7, None, 9),
        (100, None, 5, 5),
        (None, 7, 5, 5),
        (3, 7, 5, 3),
        (0, 7, None, 0),
        (-1, None, 5, -1),
    ],
)
def test_the_output_limit_is_the_least_of_what_is_asked_for_allowed_and_left(
    requested: int | None, default: int | None, cap: int | None, expected: int
) -> None:
    defaults = SamplingDefaults(max_tokens=default, max_tokens_cap=cap)
    assert resolve_max_tokens(requested, 4, 64, defaults) == expected


def test_a_prompt_that_fills_the_context_leaves_no_output() -> None:
    assert resolve_max_tokens(5, 64, 64, NEUTRAL) == 0


# Greedy.


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (0.0, 0.0),
        (-0.0, 0.0),
        (5e-324, 0.01),
        (1e-6, 0.01),
        (0.009, 0.01),
        (0.01, 0.01),
        (1.0, 1.0),
    ],
)
def test_a_small_temperature_is_raised_and_only_zero_is_greedy(
    temperature: float, expected: float
) -> None:
    sampling = resolved(temperature=temperature, top_p=0.5, top_k=3, min_p=0.5)
    assert sampling.temperature == expected
    assert sampling.greedy == (expected == 0)


def test_what_narrows_the_choice_is_neutral_when_greedy() -> None:
    sampling = resolved(temperature=0.0, top_p=0.5, top_k=3, min_p=0.5, presence_penalty=1.0)
    assert (sampling.top_p, sampling.top_k, sampling.min_p) == (1.0, 0, 0.0)
    assert sampling.presence_penalty == 1.0


@pytest.mark.parametrize(
    ("default", "requested", "greedy"),
    [(0.0, None, True), (0.0, 1.0, False), (1.0, 0.0, True), (1e-6, None, False)],
)
def test_greedy_needs_one_sample_after_the_defaults(
    default: float, requested: float | None, greedy: bool
) -> None:
    sampling = resolved(SamplingDefaults(temperature=default), temperature=requested)
    check_greedy(sampling, 1)
    if not greedy:
        check_greedy(sampling, 3)
        return
    with pytest.raises(
        InvalidRequestError, match=r"^n must be 1 when using greedy sampling, got 3\.$"
    ) as caught:
        check_greedy(sampling, 3)
    assert caught.value.parameter is None


# What becomes of the rest.


def test_no_seed_is_what_minus_one_means() -> None:
    assert resolved(seed=-1).seed is None
    assert resolved(seed=0).seed == 0


def test_stop_tokens_are_kept_once_in_their_order() -> None:
    assert resolved(stop_token_ids=[5, 3, 5, 9, 3]).stop_token_ids == [5, 3, 9]


def test_biases_are_kept_between_minus_and_plus_100() -> None:
    sampling = resolved(
        logit_bias={"1": 1e9, "2": -INF, "3": NAN, "4": -5.5, " 5 ": 100.0, "-6": INF}
    )
    assert sampling.logit_bias == {1: 100.0, 2: -100.0, 3: -100.0, 4: -5.5, 5: 100.0, -6: 100.0}
    assert resolved(logit_bias={}).logit_bias == {}


# The vocabulary.


def vocabulary_fault(max_logprobs: int = 20, **options: object) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        check_vocabulary(resolved(**options), 100, max_logprobs, 8)
    return caught.value


@pytest.mark.parametrize(
    ("logprobs", "max_logprobs", "count", "allowed"),
    [(21, 20, 21, 20), (-1, 20, 100, 20), (101, -1, 101, 100), (1, 0, 1, 0)],
)
def test_more_logprobs_than_allowed_are_refused(
    logprobs: int, max_logprobs: int, count: int, allowed: int
) -> None:
    error = vocabulary_fault(max_logprobs, logprobs=logprobs)
    assert str(error) == (
        f"Requested sample logprobs of {count}, which is greater than max allowed: {allowed}"
    )
    assert (error.parameter, error.value) == ("logprobs", count)


@pytest.mark.parametrize(
    ("logprobs", "max_logprobs"),
    [(None, 0), (0, 0), (20, 20), (-1, -1), (-1, 100), (100, -1)],
)
def test_as_many_logprobs_as_allowed_are_taken(logprobs: int | None, max_logprobs: int) -> None:
    check_vocabulary(resolved(logprobs=logprobs), 100, max_logprobs, 8)


def test_token_ids_out_of_the_vocabulary_are_refused() -> None:
    error = vocabulary_fault(logit_bias={"100": 1.0, "99": 1.0, "-1": 1.0})
    assert str(error) == (
        "token_id(s) [100, -1] in logit_bias contain out-of-vocab token ids. Vocabulary size: 100"
    )
    assert (error.parameter, error.value) == ("logit_bias", [100, -1])
    error = vocabulary_fault(stop_token_ids=[0, -1, 2**70])
    assert str(error) == (
        f"token_id(s) [-1, {2**70}] in stop_token_ids contain out-of-vocab token ids. "
        "Vocabulary size: 100"
    )
    assert (error.parameter, error.value) == ("stop_token_ids", [-1, 2**70])
    check_vocabulary(resolved(logit_bias={"0": 1.0, "99": 1.0}, stop_token_ids=[0, 99]), 100, 20, 8)


def test_logprobs_come_before_biases_and_biases_before_stop_tokens() -> None:
    options: dict[str, object] = {
        "logprobs": 21,
        "logit_bias": {"100": 1.0},
        "stop_token_ids": [100],
    }
    for name in ("logprobs", "logit_bias", "stop_token_ids"):
        assert vocabulary_fault(**options).parameter == name
        del options[name]
