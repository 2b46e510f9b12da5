from collections.abc import Callable

import msgspec
import pytest

from umbel_engine.wire import SamplingParams
from umbel_text.defaults import SamplingDefaults
from umbel_text.errors import InvalidRequestError, InvalidTextError
from umbel_text.lowering import lower
from umbel_text.model import TextModel
from umbel_text.request import SamplingOptions, TextRequest
from umbel_text.tokenizer import SpecialTokens, Tokenizer

MAX_MODEL_LEN = 32
VOCABULARY_SIZE = 500
NEUTRAL = SamplingDefaults()


@pytest.fixture(scope="session")
def model(byte_level: Tokenizer) -> TextModel:
    """A model with more token ids than its tokenizer knows."""
    assert byte_level.max_token_id < VOCABULARY_SIZE - 1
    return TextModel(byte_level, MAX_MODEL_LEN, VOCABULARY_SIZE, NEUTRAL)


@pytest.fixture
def with_defaults(model: TextModel) -> Callable[..., TextModel]:
    def with_defaults(**defaults: object) -> TextModel:
        return msgspec.structs.replace(model, defaults=SamplingDefaults(**defaults))

    return with_defaults


def make_request(prompt: str | list[int] = "a", **fields: object) -> TextRequest:
    """Make a request; what is not a field of it is a sampling option."""
    own = {name: fields.pop(name) for name in set(TextRequest.__struct_fields__) & set(fields)}
    sampling = SamplingOptions(**fields)
    return TextRequest(request_id="x", prompt=prompt, sampling=sampling, arrival_time=0.0, **own)


def params_of(model: TextModel, **options: object) -> SamplingParams:
    return lower(make_request(**options), 1, model).sampling_params


def fault(
    model: TextModel, prompt: str | list[int] = "a", n: int = 1, **fields: object
) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        lower(make_request(prompt, **fields), n, model)
    return caught.value


# The prompt.


def test_text_is_tokenized_and_token_ids_are_taken_as_they_are(model: TextModel) -> None:
    request = make_request("naïve 学字")
    lowered = lower(request, 1, model)
    assert lowered.prompt_token_ids == model.tokenizer.encode("naïve 学字")
    assert lowered.request is request
    assert lower(make_request([5, 6]), 1, model).prompt_token_ids == [5, 6]


def test_special_tokens_are_added_where_they_are_wanted(byte_level: Tokenizer) -> None:
    from tokenizers.processors import TemplateProcessing

    backend = type(byte_level.backend).from_str(byte_level.backend.to_str())
    start = backend.token_to_id("<|start|>")
    backend.post_processor = TemplateProcessing(
        single="<|start|> $A", special_tokens=[("<|start|>", start)]
    )
    tokenizer = Tokenizer(backend, SpecialTokens({}))
    model = TextModel(tokenizer, MAX_MODEL_LEN, 1000, NEUTRAL)
    with_start = lower(make_request("a"), 1, model).prompt_token_ids
    without = lower(make_request("a", add_special_tokens=False), 1, model).prompt_token_ids
    assert with_start == [start, *without]


def test_a_text_with_more_characters_than_could_fit_is_not_tokenized(
    model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.tokenizer, "encode", pytest.fail)
    limit = MAX_MODEL_LEN * model.tokenizer.max_characters_per_token
    error = fault(model, "a" * (limit + 1))
    assert str(error) == (
        f"This model's maximum context length is {MAX_MODEL_LEN} tokens. However, your prompt "
        f"contains {limit + 1} characters (more than {limit} characters, which is the upper bound "
        f"for {MAX_MODEL_LEN} input tokens). Please reduce the length of the input prompt."
    )
    assert (error.parameter, error.value) == ("input_text", limit + 1)


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        # A text is not tokenized beyond one token too many.
        ("@" * (MAX_MODEL_LEN + 1), "at least 33"),
        ("@" * (MAX_MODEL_LEN + 9), "at least 33"),
        ([5] * (MAX_MODEL_LEN + 1), "at least 33"),
        ([5] * (MAX_MODEL_LEN + 9), "41"),
    ],
)
def test_a_prompt_longer_than_the_context_is_refused(
    model: TextModel, prompt: str | list[int], told: str
) -> None:
    error = fault(model, prompt)
    assert str(error) == (
        f"This model's maximum context length is {MAX_MODEL_LEN} tokens. However, your prompt "
        f"contains {told} input tokens, which exceeds this limit even without any output tokens. "
        "Please reduce the length of the input prompt."
    )
    assert (error.parameter, error.value) == ("input_tokens", int(told.split()[-1]))


def test_a_prompt_that_fills_the_context_leaves_no_room_for_output(model: TextModel) -> None:
    assert str(fault(model, [5] * MAX_MODEL_LEN)) == "max_tokens must be at least 1, got 0."
    lowered = lower(make_request([5] * (MAX_MODEL_LEN - 1)), 1, model)
    assert lowered.sampling_params.max_tokens == 1


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_refused(model: TextModel, prompt: str | list[int]) -> None:
    error = fault(model, prompt)
    assert str(error) == "The decoder prompt cannot be empty"
    assert error.parameter is None


@pytest.mark.parametrize("token_id", [-1, 2**31, 2**70])
def test_a_token_id_out_of_the_vocabulary_is_refused(model: TextModel, token_id: int) -> None:
    error = fault(model, [5, token_id, 6])
    assert str(error) == f"Token id {token_id} is out of vocabulary"
    assert error.parameter is None


def test_the_vocabulary_ends_with_the_models_last_token(model: TextModel) -> None:
    size = model.vocabulary_size
    assert lower(make_request([0, size - 1]), 1, model).prompt_token_ids == [0, size - 1]
    assert str(fault(model, [0, size])) == f"Token id {size} is out of vocabulary"


def test_text_that_is_no_unicode_is_refused(model: TextModel) -> None:
    assert isinstance(fault(model, "a\ud800"), InvalidTextError)


# The output limit.


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_output_limit_beyond_the_context_is_refused_under_its_callers_name(
    model: TextModel, name: str
) -> None:
    error = fault(model, max_tokens=MAX_MODEL_LEN + 1, max_tokens_name=name)
    assert str(error) == (
        f"{name}={MAX_MODEL_LEN + 1} cannot be greater than max_model_len={MAX_MODEL_LEN}. "
        "Please request fewer output tokens."
    )
    assert (error.parameter, error.value) == (name, MAX_MODEL_LEN + 1)


def test_a_rest_of_the_context_smaller_than_the_limit_is_what_is_sent(model: TextModel) -> None:
    assert params_of(model, prompt=[5] * 10).max_tokens == MAX_MODEL_LEN - 10
    assert params_of(model, prompt=[5] * 10, max_tokens=MAX_MODEL_LEN).max_tokens == 22
    assert params_of(model, prompt=[5] * 10, max_tokens=7).max_tokens == 7


def test_the_models_output_limit_holds_where_none_is_asked_for(
    with_defaults: Callable[..., TextModel],
) -> None:
    assert params_of(with_defaults(max_tokens=3)).max_tokens == 3
    capped = with_defaults(max_tokens=3, max_tokens_cap=5)
    assert params_of(capped, max_tokens=20).max_tokens == 5


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_an_output_limit_of_nothing_is_refused(model: TextModel, max_tokens: int) -> None:
    error = fault(model, max_tokens=max_tokens, max_tokens_name="max_completion_tokens")
    assert str(error) == f"max_tokens must be at least 1, got {max_tokens}."
    assert error.parameter == "max_tokens"


# The order of the stages.


def test_faults_are_looked_for_stage_by_stage(model: TextModel) -> None:
    size = model.vocabulary_size
    fields: dict[str, object] = {
        "max_tokens": MAX_MODEL_LEN + 1,
        "prompt": [5] * (MAX_MODEL_LEN + 2),
        "logit_bias": {"a": 1.0},
        "temperature": 0.0,
        "logprobs": 21,
        "stop_token_ids": [size],
    }
    expected = [
        ("max_tokens", "max_tokens=33 cannot be greater"),
        ("prompt", "This model's maximum context length"),
        ("logit_bias", "logit_bias contains key(s)"),
        ("temperature", "n must be 1 when using greedy sampling, got 2."),
        ("logprobs", "Requested sample logprobs of 21"),
        ("stop_token_ids", f"token_id(s) [{size}] in stop_token_ids"),
    ]
    for name, message in expected:
        prompt = fields.get("prompt", [])
        rest = {key: value for key, value in fields.items() if key != "prompt"}
        # The empty prompt that is left in the end is a fault, too, and the last to be found.
        assert str(fault(model, prompt, n=2, **rest)).startswith(message)
        del fields[name]
    assert str(fault(model, [], n=2)) == "The decoder prompt cannot be empty"


@pytest.mark.parametrize("temperature", [0.0, None])
def test_more_than_one_sample_needs_randomness(
    with_defaults: Callable[..., TextModel], temperature: float | None
) -> None:
    model = with_defaults(temperature=0.0)
    assert str(fault(model, n=2, temperature=temperature)) == (
        "n must be 1 when using greedy sampling, got 2."
    )
    assert lower(make_request(temperature=temperature), 1, model).sampling.greedy
    lowered = lower(make_request(temperature=1e-6), 2, model)
    assert lowered.sampling_params.temperature == 0.01


# What the engine is told.


def test_every_option_reaches_the_engine_except_what_is_done_here(model: TextModel) -> None:
    options = {
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.25,
        "temperature": 0.75,
        "top_p": 0.5,
        "top_k": 7,
        "min_p": 0.25,
        "seed": 42,
        "max_tokens": 9,
        "min_tokens": 2,
        "logprobs": 3,
        "ignore_eos": True,
    }
    params = params_of(
        model,
        stop=["END"],
        include_stop_str_in_output=True,
        skip_special_tokens=False,
        logit_bias={"5": 200.0},
        stop_token_ids=[8, 8],
        **options,
    )
    for name, value in options.items():
        assert getattr(params, name) == value
    assert params.logit_bias == {5: 100.0}
    assert params.stop_token_ids == [8]
    assert params.prompt_logprobs is None
    # Stop strings are matched on the text, which the engine does not have.
    assert b"END" not in msgspec.msgpack.encode(params)


def test_a_top_k_beyond_32_bits_means_the_whole_vocabulary(model: TextModel) -> None:
    assert params_of(model, top_k=2**40).top_k == 2**31 - 1
    assert params_of(model, top_k=-1).top_k == -1


EOS = "eos"
EXTRA = (7, 9)


@pytest.mark.parametrize(
    ("ignore_eos", "extra", "stop_token_ids", "expected_stop", "expected_all"),
    [
        (False, (), [], [], [EOS]),
        (False, (), [5], [5], [5, EOS]),
        (False, EXTRA, [5, 7], [5, 7, 9], [5, 7, 9, EOS]),
        (True, (), [5], [5], [5, EOS]),
        (True, EXTRA, [5], [5], [5, 7, 9, EOS]),
    ],
)
def test_end_of_sequence_tokens_stop_unless_they_are_ignored(
    with_defaults: Callable[..., TextModel],
    ignore_eos: bool,
    extra: tuple[int, ...],
    stop_token_ids: list[int],
    expected_stop: list[int],
    expected_all: list[int | str],
) -> None:
    model = with_defaults()
    eos = model.eos_token_id
    assert eos is not None
    # The tokenizer's own is often among those of the generation config.
    model = with_defaults(eos_token_ids=(*extra, eos) if extra else ())
    params = params_of(model, ignore_eos=ignore_eos, stop_token_ids=stop_token_ids)
    assert params.ignore_eos == ignore_eos
    assert params.eos_token_id == (None if ignore_eos else eos)
    assert sorted(params.stop_token_ids) == sorted(expected_stop)
    everything = {eos if token_id == EOS else token_id for token_id in expected_all}
    # The engine masks all of them before min_tokens, those that are ignored included.
    assert set(params.all_stop_token_ids) == everything
    assert len(params.all_stop_token_ids) == len(everything)


def test_a_tokenizer_without_an_end_of_sequence_token_leaves_that_to_the_config(
    byte_level: Tokenizer,
) -> None:
    tokenizer = Tokenizer(byte_level.backend, SpecialTokens({}))
    defaults = SamplingDefaults(eos_token_ids=EXTRA)
    params = params_of(TextModel(tokenizer, MAX_MODEL_LEN, 100, defaults))
    assert params.eos_token_id is None
    assert params.stop_token_ids == list(EXTRA)
    assert params.all_stop_token_ids == list(EXTRA)


# What the engine's sampler has room for.


def test_more_tokens_than_a_gpu_sampler_has_room_for_are_refused(model: TextModel) -> None:
    large = msgspec.structs.replace(model, vocabulary_size=5000)
    biases = {str(token_id): 1.0 for token_id in range(1025)}
    refused = fault(large, logit_bias=biases)
    assert (refused.parameter, refused.value) == ("logit_bias", 1025)
    del biases["7"]
    assert len(params_of(large, logit_bias=biases).logit_bias or ()) == 1024

    # The end-of-sequence token is one more.
    token_ids = list(range(1000, 1128))
    assert large.eos_token_id is not None
    refused = fault(large, min_tokens=1, stop_token_ids=token_ids)
    assert (refused.parameter, refused.value) == ("stop_token_ids", 129)
    assert params_of(large, min_tokens=1, stop_token_ids=token_ids[1:]).min_tokens == 1
    assert params_of(large, stop_token_ids=token_ids).stop_token_ids == token_ids
