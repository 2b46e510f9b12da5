"""Extra arguments go to the engine as they are, unless the engine would die of them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel_text.defaults import SamplingDefaults
from umbel_text.errors import InvalidRequestError
from umbel_text.extra_args import DEEPEST, check_extra_args
from umbel_text.lowering import lower
from umbel_text.model import TextModel
from umbel_text.request import SamplingOptions, TextRequest
from umbel_text.tokenizer import Tokenizer

OUT_OF_RANGE = "extra_args integers must be between -2**63 and 2**64 - 1."


def fault(extra_args: dict[str, object]) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        check_extra_args(extra_args)
    # The value may be long, or have no words: vLLM does not repeat it.
    assert caught.value.value is msgspec.UNSET
    return str(caught.value)


def nested(levels: int) -> dict[str, object]:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return {"a": value}


@pytest.mark.parametrize("number", [-(2**63) - 1, 2**64, 10**40])
@pytest.mark.parametrize("place", ["value", "in a list", "in an object"])
def test_integers_that_messagepack_has_no_room_for_are_refused(number: int, place: str) -> None:
    values = {"value": number, "in a list": [1, [number]], "in an object": {"x": {"y": number}}}
    assert fault({"first": "ok", "a": values[place]}) == OUT_OF_RANGE


@pytest.mark.parametrize("number", [-(2**63), 2**64 - 1, True, 1e300])
def test_numbers_that_it_has_room_for_are_taken(number: float) -> None:
    check_extra_args({"a": number, "b": [number], "kv_transfer_params": {"c": number}})
    msgspec.msgpack.encode(number)


@pytest.mark.parametrize("place", ["key", "inner key", "value", "in a list"])
def test_text_that_cannot_be_encoded_is_refused(place: str) -> None:
    lone = "\ud800"
    arguments = {
        "key": {lone: 1},
        "inner key": {"kv_transfer_params": {lone: 1}},
        "value": {"a": lone},
        "in a list": {"a": ["ok", lone]},
    }
    assert fault(arguments[place]).startswith("extra_args must not contain lone surrogates.")
    check_extra_args({"na\u00efve": "\U0001f389"})


def test_values_may_not_nest_too_deeply_for_the_engines_decoder() -> None:
    check_extra_args(nested(DEEPEST - 2))
    assert fault(nested(DEEPEST)) == ("extra_args must not be nested more than 64 levels deep.")
    assert fault(nested(100_000)).startswith("extra_args must not be nested")


@pytest.mark.parametrize("name", ["kv_transfer_params", "ec_transfer_params"])
@pytest.mark.parametrize("value", ["text", 1, None, [{}]])
def test_what_the_engine_reads_itself_must_be_an_object(name: str, value: object) -> None:
    assert fault({name: value}) == f"{name} must be an object."
    check_extra_args({name: {}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec=None)), inner),
)


@given(st.dictionaries(st.text(), json_values))
def test_what_is_accepted_can_be_sent(extra_args: dict[str, object]) -> None:
    try:
        check_extra_args(extra_args)
    except InvalidRequestError:
        return
    msgspec.msgpack.decode(msgspec.msgpack.encode(extra_args))


def sent(byte_level: Tokenizer, extra_args: dict[str, object] | None) -> object:
    model = TextModel(byte_level, 32, 500, SamplingDefaults())
    sampling = SamplingOptions(extra_args=extra_args)
    request = TextRequest(request_id="x", prompt="a", sampling=sampling)
    return lower(request, 1, model).sampling_params.extra_args


def test_the_engine_gets_them_as_they_are(byte_level: Tokenizer) -> None:
    given_args = {"a": [1, "b", 0.5], "kv_transfer_params": {"do_remote_prefill": True}}
    assert sent(byte_level, given_args) == given_args
    assert sent(byte_level, {}) is None
    assert sent(byte_level, None) is None
