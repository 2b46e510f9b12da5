"""Nothing that is accepted may harm the engine, which validates again while it decodes."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umbel_engine import EngineCoreRequest, RepetitionDetection
from umbel_engine.wire import EncodedRequest
from umbel_llm.fanout import Children
from umbel_text.defaults import SamplingDefaults
from umbel_text.errors import InvalidRequestError
from umbel_text.lowering import lower
from umbel_text.model import TextModel
from umbel_text.request import SamplingOptions, TextRequest
from umbel_text.tokenizer import Tokenizer

MAX_MODEL_LEN = 32
VOCABULARY_SIZE = 500
NEUTRAL = SamplingDefaults()


@pytest.fixture(scope="session")
def model(byte_level: Tokenizer) -> TextModel:
    """A model with more token ids than its tokenizer knows."""
    assert byte_level.max_token_id < VOCABULARY_SIZE - 1
    return TextModel(byte_level, MAX_MODEL_LEN, VOCABULARY_SIZE, NEUTRAL)


class DecodedParams(msgspec.Struct):
    """The types that vLLM 0.33 decodes sampling parameters into, as far as they are served."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    output_kind: int = 0
    watermarking: bool | None = None
    _eos_token_id: int | None = None
    _all_stop_token_ids: set[int] = msgspec.field(default_factory=set)
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, object] | None = None
    _bad_words_token_ids: list[list[int]] | None = None
    thinking_token_budget: int | None = None
    repetition_detection: RepetitionDetection | None = None
    routed_experts_prompt_start: int = 0


def broken_rules(params: DecodedParams, vocabulary_size: int) -> list[str]:
    """The rules of vLLM's own validation on decoding (0.33), and what its sampler relies on."""
    ids = [
        *(params.stop_token_ids or ()),
        *params._all_stop_token_ids,
        *(params.logit_bias or ()),
        *(params.logprob_token_ids or ()),
        *(params.allowed_token_ids or ()),
        *(token_id for word in params._bad_words_token_ids or () for token_id in word),
    ]
    named = len(params.logprob_token_ids or ())
    detection = params.repetition_detection or RepetitionDetection()
    rules = {
        "n": params.n == 1,
        "presence_penalty": -2 <= params.presence_penalty <= 2,
        "frequency_penalty": -2 <= params.frequency_penalty <= 2,
        "repetition_penalty": math.isfinite(params.repetition_penalty)
        and params.repetition_penalty > 0,
        "temperature": 0 <= params.temperature <= 2,
        "top_p": 0 < params.top_p <= 1,
        "top_k": -1 <= params.top_k < 2**31,
        "min_p": 0 <= params.min_p <= 1,
        "seed": params.seed is None or -(2**63) <= params.seed < 2**63,
        "max_tokens": params.max_tokens is not None and params.max_tokens >= 1,
        "min_tokens": params.max_tokens is not None and 0 <= params.min_tokens <= params.max_tokens,
        "logprobs": params.logprobs is None or -1 <= params.logprobs <= vocabulary_size,
        "prompt_logprobs": params.prompt_logprobs is None
        or -1 <= params.prompt_logprobs <= vocabulary_size,
        "logprob_token_ids": named <= 128 and (not named or params.logprobs in (None, named)),
        "allowed_token_ids": params.allowed_token_ids != [],
        "bad words": all(params._bad_words_token_ids or ()),
        "repetition_detection": 0
        <= detection.min_pattern_size
        <= detection.max_pattern_size
        < 2**31
        and (detection.max_pattern_size == 0 or detection.min_count >= 2),
        "no thinking": params.thinking_token_budget is None,
        "transfer parameters": isinstance(
            (params.extra_args or {}).get("kv_transfer_params", {}), dict
        ),
        "logit_bias": all(-100 <= bias <= 100 for bias in (params.logit_bias or {}).values()),
        "output_kind": params.output_kind in (0, 1, 2),
        "token ids": all(0 <= token_id < vocabulary_size for token_id in ids),
        "eos": params._eos_token_id is None or params._eos_token_id in params._all_stop_token_ids,
        # A change on decoding would be harmless, but means that the rule was not applied here.
        "no small temperature": not 0 < params.temperature < 0.01,
        "greedy is neutral": params.temperature > 0
        or (params.top_p, params.top_k, params.min_p) == (1, 0, 0),
    }
    return [name for name, holds in rules.items() if not holds]


FLOATS = [math.nan, math.inf, -2.1, -0.1, -0.0, 0.0, 1e-300, 1e-6, 0.5, 1.0, 1.1, 2.0, 2.1, 1e9]
INTEGERS = [-2, -1, 0, 1, 7, 40, VOCABULARY_SIZE - 1, VOCABULARY_SIZE, 2**31, 2**63, 2**64]
any_float = st.one_of(st.sampled_from(FLOATS), st.floats())
any_int = st.one_of(st.sampled_from(INTEGERS), st.integers())
any_key = st.one_of(st.integers(-1, VOCABULARY_SIZE).map(str), st.sampled_from(["5", "a", ""]))
OPTIONS: dict[str, tuple[list[object], st.SearchStrategy[object]]] = {
    "presence_penalty": ([None, 0.5, -2.0], any_float),
    "frequency_penalty": ([None, 0.5, 2.0], any_float),
    "repetition_penalty": ([None, 0.5, 2.0], any_float),
    "temperature": ([None, 0.0, 0.5, 1e-6], any_float),
    "top_p": ([None, 0.5, 1.0], any_float),
    "top_k": ([None, -1, 5], any_int),
    "min_p": ([None, 0.0, 0.5], any_float),
    "seed": ([None, -1, 0, 7], any_int),
    "stop": ([[], ["a"]], st.lists(st.text(max_size=2), max_size=2)),
    "stop_token_ids": ([[], [5, 5]], st.lists(any_int, min_size=1, max_size=2)),
    "ignore_eos": ([False, True], st.booleans()),
    "max_tokens": ([None, 4], any_int),
    "min_tokens": ([0, 1], any_int),
    "logprobs": ([None, 0, 20], any_int),
    "logit_bias": (
        [None, {}, {"5": 1.0}],
        st.dictionaries(any_key, any_float, min_size=1, max_size=2),
    ),
    "prompt_logprobs": ([None, 0, 20], any_int),
    "logprob_token_ids": ([None, [], [5, 5]], st.lists(any_int, min_size=1, max_size=2)),
    "allowed_token_ids": ([None, [5, 6]], st.lists(any_int, max_size=2)),
    "bad_words": ([[], ["a", "the"]], st.lists(st.text(max_size=3), max_size=2)),
    "repetition_detection": (
        [None, RepetitionDetection(4, 2, 3)],
        st.builds(RepetitionDetection, any_int, any_int, any_int),
    ),
    "thinking_token_budget": ([None, -1], any_int),
    "routed_experts_prompt_start": ([0, 1], any_int),
    "extra_args": (
        [None, {"a": [1]}],
        st.dictionaries(
            st.sampled_from(["a", "kv_transfer_params"]),
            st.one_of(any_int, any_float, st.text(st.characters(codec=None), max_size=2)),
        ),
    ),
}


@st.composite
def sampling_options(draw: st.DrawFn) -> SamplingOptions:
    """Options that are mostly fine, but for one or two that may be anything."""
    options = {}
    choice = draw(st.integers(0, 2**64 - 1))
    for name, (usual, _) in OPTIONS.items():
        choice, index = divmod(choice, len(usual))
        options[name] = usual[index]
    for name in draw(st.lists(st.sampled_from(list(OPTIONS)), min_size=1, max_size=2)):
        options[name] = draw(OPTIONS[name][1])
    return SamplingOptions(**options)


prompts = st.one_of(
    st.sampled_from(["a", "naïve 学字"]),
    st.text(max_size=12),
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.lists(any_int, max_size=2),
)
some_defaults = st.sampled_from(
    [
        NEUTRAL,
        SamplingDefaults(temperature=0.0, top_k=50, top_p=0.9, max_tokens=8, eos_token_ids=(3, 4)),
        SamplingDefaults(temperature=1e-5, repetition_penalty=0.5, max_tokens_cap=5),
        SamplingDefaults(top_k=2**40, max_tokens=3),
    ]
)


@settings(max_examples=800)
@given(prompts, sampling_options(), some_defaults, st.integers(1, 3), st.sampled_from([20, -1]))
def test_whatever_is_accepted_passes_the_validation_of_the_engine(
    model: TextModel,
    prompt: str | list[int],
    options: SamplingOptions,
    defaults: SamplingDefaults,
    n: int,
    max_logprobs: int,
) -> None:
    model = msgspec.structs.replace(model, defaults=defaults, max_logprobs=max_logprobs)
    request = TextRequest(request_id="x", prompt=prompt, sampling=options, arrival_time=0.0)
    try:
        lowered = lower(request, n, model)
    except InvalidRequestError:
        return
    sent = EngineCoreRequest(
        "x", lowered.prompt_token_ids, None, lowered.sampling_params, None, 0.0
    )
    encoded = EncodedRequest(sent)
    seed = lowered.sampling_params.seed
    payloads = [
        # With the seed of the request itself, and as the children are sent.
        encoded.payload("x", seed),
        *(encoded.payload(child.request_id, child.seed) for child in Children("x", seed, n)),
    ]
    for payload in payloads:
        elements = msgspec.msgpack.decode(payload, type=list[msgspec.Raw])
        prompt_token_ids = msgspec.msgpack.decode(elements[1], type=list[int])
        params = msgspec.msgpack.decode(elements[3], type=DecodedParams)
        assert broken_rules(params, VOCABULARY_SIZE) == []
        assert all(0 <= token_id < VOCABULARY_SIZE for token_id in prompt_token_ids)
        assert params.max_tokens is not None
        assert 1 <= len(prompt_token_ids) <= MAX_MODEL_LEN - params.max_tokens
        assert n == 1 or params.temperature > 0
