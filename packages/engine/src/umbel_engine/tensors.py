"""Arrays on the wire: a triple of dtype, shape and data, inline or in an auxiliary frame.

The layout is that of vllm/v1/serial_utils.py.  Small arrays travel inside the MessagePack
payload as extension type 3; larger ones are frames of their own, and the triple holds the frame's
position, counted from the payload, which is position 0.

numpy is imported with the first array: it takes a fifth of the time that a server needs to start,
and only log-probabilities come as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RAW_VIEW = 3
"""The MessagePack extension type that carries an array's bytes."""

INLINE_LIMIT = 256
"""Arrays of fewer bytes than this travel inline (VLLM_MSGPACK_ZERO_COPY_THRESHOLD)."""

Array: TypeAlias = "NDArray[np.generic]"


class WireArray(msgspec.Struct, array_like=True, frozen=True):
    """One array as it stands in a message.

    `dtype` is numpy's string (`"<i4"`) or torch's bare name (`"int64"`).
    """

    dtype: str
    shape: tuple[int, ...]
    data: int | msgspec.msgpack.Ext


_BYTE_ORDERS = ("<", ">", "|", "=")
_TORCH_DTYPES = {
    "bool": "|b1",
    "uint8": "|u1",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
}


def to_array(wire: WireArray, frames: Sequence[bytes]) -> Array:
    """Read an array from a message; the result owns its memory.

    `frames` are the frames of the message, the MessagePack payload first.  Raises ValueError when
    the triple does not describe an array (unknown type, missing frame, wrong size).
    """
    import numpy as np

    if isinstance(wire.data, int):
        if not 0 < wire.data < len(frames):
            raise ValueError(
                f"array data in frame {wire.data}, but the message has {len(frames)} frames"
            )
        data: bytes | memoryview = frames[wire.data]
    elif wire.data.code == RAW_VIEW:
        data = memoryview(wire.data.data)
    else:
        raise ValueError(f"array data in extension type {wire.data.code}, expected {RAW_VIEW}")
    name = _TORCH_DTYPES.get(wire.dtype, wire.dtype)
    # What other bare names mean depends on what else the process has imported.
    if not name.startswith(_BYTE_ORDERS):
        raise ValueError(f"array of unknown type {wire.dtype!r}")
    try:
        dtype = np.dtype(name)
    except TypeError as error:
        raise ValueError(f"array of unknown type {wire.dtype!r}") from error
    if dtype.hasobject:
        raise ValueError(f"array of type {wire.dtype!r} cannot come over the wire")
    # A view would keep the whole frame alive for as long as one row of it is kept.
    return np.frombuffer(data, dtype).reshape(wire.shape).copy()


def from_array(array: Array, frames: list[bytes]) -> WireArray:
    """Write an array for a message; large data is appended to `frames` (payload excluded)."""
    import numpy as np

    if array.nbytes < INLINE_LIMIT or array.ndim == 0:
        return inline_array(array)
    frames.append(np.ascontiguousarray(array).tobytes())
    return WireArray(array.dtype.str, array.shape, len(frames))


def token_id_rows(rows: Sequence[Sequence[int]]) -> WireArray:
    """Write rows of token ids as one array of 32-bit integers, -1 where a row is shorter.

    It travels inline, whatever its size.
    """
    import numpy as np

    array = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int32)
    for line, row in zip(array, rows, strict=True):
        line[: len(row)] = row
    return inline_array(array)


def inline_array(array: Array) -> WireArray:
    """Write an array for a message, within the payload whatever its size."""
    data = array.tobytes()
    return WireArray(array.dtype.str, array.shape, msgspec.msgpack.Ext(RAW_VIEW, data))


def join_arrays(arrays: Sequence[Array]) -> Array | None:
    """Join arrays along their first dimension; None when there are none."""
    if not arrays:
        return None
    import numpy as np

    return np.concatenate(arrays)
