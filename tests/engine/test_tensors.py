import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel_engine.tensors import INLINE_LIMIT, WireArray, from_array, to_array, token_id_rows


def over_the_wire(array):
    """Give an array as the other side reads it, and how many frames of its own it took."""
    wire = from_array(array, large := [])
    frames = [msgspec.msgpack.encode(wire), *large]
    return to_array(msgspec.msgpack.decode(frames[0], type=WireArray), frames), len(large)


def test_a_small_array_is_the_bytes_that_vllm_writes():
    wire = from_array(np.array([[72, 5]], np.int32), [])
    expected = "93a33c6934920102d7034800000005000000"
    assert msgspec.msgpack.encode(wire).hex() == expected


@pytest.mark.parametrize("size", [0, 1, INLINE_LIMIT - 1])
def test_small_arrays_travel_inline(size):
    array = np.arange(size, dtype=np.uint8)
    result, frames = over_the_wire(array)
    assert frames == 0
    np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize("size", [INLINE_LIMIT, 10_000])
def test_large_arrays_travel_in_frames_of_their_own(size):
    array = np.arange(size, dtype=np.uint8)
    result, frames = over_the_wire(array)
    assert frames == 1
    np.testing.assert_array_equal(result, array)


def test_rows_of_token_ids_are_padded_and_travel_inline():
    rows = [[1, 2, 3], [], [7]] * 100
    wire = token_id_rows(rows)
    result = to_array(msgspec.msgpack.decode(msgspec.msgpack.encode(wire), type=WireArray), ())
    assert result.dtype == np.int32
    assert result[:3].tolist() == [[1, 2, 3], [-1, -1, -1], [7, -1, -1]]
    assert result.shape == (300, 3)


def test_a_scalar_array_travels_inline():
    result, frames = over_the_wire(np.array(3.5))
    assert (frames, result.shape, float(result)) == (0, (), 3.5)


def test_frames_are_counted_from_the_payload():
    frames = []
    first = from_array(np.zeros(100), frames)
    small = from_array(np.zeros(2), frames)
    second = from_array(np.ones(100), frames)
    assert (first.data, second.data, len(frames)) == (1, 2, 2)
    message = [b"payload", *frames]
    np.testing.assert_array_equal(to_array(first, message), np.zeros(100))
    np.testing.assert_array_equal(to_array(small, message), np.zeros(2))
    np.testing.assert_array_equal(to_array(second, message), np.ones(100))


def test_an_array_that_is_not_contiguous_keeps_its_values():
    array = np.arange(200, dtype=np.int64).reshape(20, 10).T
    result, _ = over_the_wire(array)
    np.testing.assert_array_equal(result, array)


@given(
    st.sampled_from(["<i4", "<i8", "<f4", "<f8", "|b1", "<u2"]),
    st.lists(st.integers(0, 6), max_size=3),
)
def test_type_shape_and_values_survive(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    result, _ = over_the_wire(array)
    assert result.dtype == array.dtype
    assert result.shape == array.shape
    np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize(
    ("name", "dtype"), [("int64", np.int64), ("float32", np.float32), ("bool", np.bool_)]
)
def test_torch_names_are_understood(name, dtype):
    array = np.ones(3, dtype)
    wire = msgspec.structs.replace(from_array(array, []), dtype=name)
    assert to_array(wire, [b""]).dtype == dtype


def test_what_was_read_does_not_keep_the_message_alive():
    array = np.zeros(1000)
    wire = from_array(array, frames := [])
    result = to_array(wire, [b"", *frames])
    assert result.flags.owndata or result.base.flags.owndata
    assert result.flags.writeable


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (WireArray("<i4", (2,), 0), "frame 0"),
        (WireArray("<i4", (2,), 2), "frame 2"),
        (WireArray("<i4", (2,), -1), "frame -1"),
        (WireArray("<i4", (3,), 1), "reshape"),
        (WireArray("<i8", (1,), msgspec.msgpack.Ext(3, b"1234")), "buffer size"),
        (WireArray("<i4", (1,), msgspec.msgpack.Ext(1, b"1234")), "extension type 1"),
        (WireArray("bf16", (1,), msgspec.msgpack.Ext(3, b"12")), "unknown type 'bf16'"),
        (WireArray("|O", (1,), msgspec.msgpack.Ext(3, b"12345678")), "cannot come over the wire"),
    ],
)
def test_what_is_not_an_array_is_refused(wire, reason):
    with pytest.raises(ValueError, match=reason):
        to_array(wire, [b"payload", b"12345678"])
