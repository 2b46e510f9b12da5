"""Fields: converting a decoded JSON object into a request, as leniently as pydantic does.

Text that reads as a number is taken for one, 2.0 for an integer, "yes" and 1 for true, and null
where the type allows None; `true` is never taken for a number.  Unknown keys are ignored.  Faults
are found in the order in which the fields are declared, all of them unless there are very many.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import msgspec

from umbel_server.requests.faults import Faults, Location

StructT = TypeVar("StructT", bound=msgspec.Struct)

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

_INTEGER = re.compile(r"[+-]?\d++(?:_\d++)*+(?:\.0++)?", re.ASCII)
_TRUE_WORDS = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE_WORDS = frozenset({"0", "false", "f", "no", "n", "off"})


class Reader(Protocol):
    """Converts values of one type.

    `read` gives the converted value; what is wrong with the value goes to `faults`, and the result
    is then of no use.
    """

    def read(self, value: object, at: Location, faults: Faults) -> object: ...


class AnyReader:
    """Takes every value as it is."""

    def read(self, value: object, at: Location, faults: Faults) -> object:
        return value


class IntReader:
    """Reads integers, of any size unless limits are given."""

    def __init__(self, meta: msgspec.Meta | None) -> None:
        self._least = None if meta is None else meta.ge
        self._most = None if meta is None else meta.le

    def read(self, value: object, at: Location, faults: Faults) -> object:
        number = value if type(value) is int else _to_int(value, at, faults)
        if number is None:
            return None
        if self._least is not None and number < self._least:
            message = f"must be at least {self._least}"
            faults.add("greater_than_equal", at, message, value, {"ge": self._least})
        elif self._most is not None and number > self._most:
            message = f"must be at most {self._most}"
            faults.add("less_than_equal", at, message, value, {"le": self._most})
        return number


def _to_int(value: object, at: Location, faults: Faults) -> int | None:
    if isinstance(value, str):
        text = value.strip()
        if _INTEGER.fullmatch(text) is None:
            message = "must be an integer, and this text does not read as one"
            faults.add("int_parsing", at, message, value)
            return None
        try:
            return int(text.split(".", 1)[0])
        except ValueError:
            faults.add("int_parsing_size", at, "is too large for an integer", value)
    elif not isinstance(value, float):
        faults.add("int_type", at, "must be an integer", value)
    elif not math.isfinite(value):
        faults.add("finite_number", at, "must be a finite number", value)
    elif not value.is_integer():
        faults.add("int_from_float", at, "must be an integer, without a fraction", value)
    elif not _is_int64(value):
        faults.add("int_parsing_size", at, "is too large for an integer", value)
    else:
        return int(value)
    return None


class FloatReader:
    """Reads numbers, infinite ones and NaN included."""

    def read(self, value: object, at: Location, faults: Faults) -> object:
        if type(value) is float:
            return value
        if isinstance(value, str):
            return _to_float(value, at, faults)
        if type(value) is int:
            try:
                return float(value)
            except OverflowError:
                pass
        faults.add("float_type", at, "must be a number", value)
        return None


def _to_float(value: str, at: Location, faults: Faults) -> float | None:
    text = value.strip()
    try:
        # Python reads digits of every script, pydantic those of ASCII alone.
        if text.isascii():
            return float(text)
    except ValueError:
        pass
    message = "must be a number, and this text does not read as one"
    faults.add("float_parsing", at, message, value)
    return None


class BoolReader:
    """Reads booleans, also written as 0 and 1 or with the words that pydantic knows."""

    def read(self, value: object, at: Location, faults: Faults) -> object:
        if isinstance(value, bool):
            return value
        if isinstance(value, (int, float)) and value in (0, 1):
            return bool(value)
        if isinstance(value, str):
            word = value.lower()
            if word in _TRUE_WORDS or word in _FALSE_WORDS:
                return word in _TRUE_WORDS
        if isinstance(value, str) or _is_int64(value):
            message = "must be true or false, and this does not read as either"
            faults.add("bool_parsing", at, message, value)
        else:
            faults.add("bool_type", at, "must be true or false", value)
        return None


def _is_int64(value: object) -> bool:
    if isinstance(value, float) and not value.is_integer():
        return False
    return isinstance(value, (int, float)) and INT64_MIN <= value <= INT64_MAX


class StringReader:
    """Reads strings; nothing else is taken for one."""

    def __init__(self, meta: msgspec.Meta | None) -> None:
        self._shortest = (meta.min_length if meta else None) or 0
        self._longest = meta.max_length if meta else None

    def read(self, value: object, at: Location, faults: Faults) -> object:
        if not isinstance(value, str):
            faults.add("string_type", at, "must be a string", value)
        elif len(value) < self._shortest:
            message = f"must have at least {self._shortest} characters"
            faults.add("string_too_short", at, message, value, {"min_length": self._shortest})
        elif self._longest is not None and len(value) > self._longest:
            message = f"must have at most {self._longest} characters"
            faults.add("string_too_long", at, message, value, {"max_length": self._longest})
        return value


class LiteralReader:
    """Reads one of a few words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        *first, last = (repr(word) for word in words)
        self._expected = f"{', '.join(first)} or {last}" if first else last

    def read(self, value: object, at: Location, faults: Faults) -> object:
        if value not in self._words:
            message = f"must be {self._expected}"
            faults.add("literal_error", at, message, value, {"expected": self._expected})
        return value


class ListReader:
    """Reads arrays of one type."""

    def __init__(self, hint: object, item: Reader, meta: msgspec.Meta | None) -> None:
        self._hint = hint
        self._item = item
        self._longest = meta.max_length if meta else None

    def read(self, value: object, at: Location, faults: Faults) -> object:
        if not isinstance(value, list):
            faults.add("list_type", at, "must be an array", value)
            return None
        if self._longest is not None and len(value) > self._longest:
            message = f"must have at most {self._longest} items, not {len(value)}"
            context = {
                "field_type": "List",
                "max_length": self._longest,
                "actual_length": len(value),
            }
            faults.add("too_long", at, message, value, context)
            return None
        exact = _convert(value, self._hint)
        if exact is not _REFUSED:
            return exact
        items = []
        for index, item in enumerate(value):
            if faults.enough:
                break
            items.append(self._item.read(item, (*at, index), faults))
        return items


class DictReader:
    """Reads objects with keys of the client's own and values of one type."""

    def __init__(self, hint: object, item: Reader) -> None:
        self._hint = hint
        self._item = item

    def read(self, value: object, at: Location, faults: Faults) -> object:
        if not isinstance(value, dict):
            faults.add("dict_type", at, "must be an object", value)
            return None
        exact = _convert(value, self._hint)
        if exact is not _REFUSED:
            return exact
        items = {}
        for key, item in value.items():
            if faults.enough:
                break
            items[key] = self._item.read(item, (*at, key), faults)
        return items


class NullableReader:
    """Reads what another reader does, and null."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, value: object, at: Location, faults: Faults) -> object:
        return None if value is None else self._reader.read(value, at, faults)


class UnionReader:
    """Reads a value of one of several types: of the one that it has, else of the first that fits.

    When none fits, the faults of all are listed, in the order of the types.
    """

    def __init__(self, hints: Iterable[object]) -> None:
        self._branches = [(hint, reader_of(hint)) for hint in hints]

    def read(self, value: object, at: Location, faults: Faults) -> object:
        for hint, _ in self._branches:
            exact = _convert(value, hint)
            if exact is not _REFUSED:
                return exact
        every = Faults()
        for _, reader in self._branches:
            found = Faults()
            result = reader.read(value, at, found)
            if not found.count:
                return result
            every.extend(found)
        faults.extend(every)
        return None


class StructReader(Generic[StructT]):
    """Reads objects with named fields into a struct.

    `readers` replaces the readers of single fields, for what a type cannot say.
    """

    def __init__(self, struct: type[StructT], readers: Mapping[str, Reader] | None = None) -> None:
        own = readers or {}
        self._struct = struct
        self._fields = [
            (field.name, own.get(field.name) or reader_of(field.type), field.required)
            for field in msgspec.structs.fields(struct)
        ]

    def read(self, value: object, at: Location, faults: Faults) -> StructT | None:
        if not isinstance(value, dict):
            faults.add("model_attributes_type", at, "must be an object", value)
            return None
        before = faults.count
        values: dict[str, object] = {}
        for name, reader, required in self._fields:
            if name in value:
                values[name] = reader.read(value[name], (*at, name), faults)
            elif required:
                faults.add("missing", (*at, name), "is required", value)
        return None if faults.count > before else self._struct(**values)

    def convert(self, body: Mapping[str, object]) -> StructT:
        """Convert a decoded body; raises ApiError with all that is wrong with it."""
        faults = Faults()
        request = self.read(body, ("body",), faults)
        if request is None:
            raise faults.error()
        return request


class CheckedReader(Generic[StructT]):
    """Reads null or an object with named fields, and checks the struct at once.

    What the check raises goes before all faults, as in vLLM, where a dataclass checks itself while
    a body is being read.
    """

    def __init__(self, struct: type[StructT], check: Callable[[StructT], None]) -> None:
        self._reader = StructReader(struct)
        self._check = check

    def read(self, value: object, at: Location, faults: Faults) -> StructT | None:
        if value is None:
            return None
        result = self._reader.read(value, at, faults)
        if result is not None:
            self._check(result)
        return result


def reader_of(hint: object, meta: msgspec.Meta | None = None) -> Reader:
    """Give the reader for a type as a struct declares it; raises TypeError for one it cannot read."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        return reader_of(arguments[0], next(a for a in arguments if isinstance(a, msgspec.Meta)))
    if origin in (Union, UnionType):
        return _union_reader(arguments)
    if origin is list:
        return ListReader(_annotated(hint, meta), reader_of(arguments[0]), meta)
    if origin is dict:
        return DictReader(hint, reader_of(arguments[1]))
    if origin is Literal:
        return LiteralReader(arguments)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return StructReader(hint)
    plain: dict[object, Reader] = {
        bool: BoolReader(),
        float: FloatReader(),
        int: IntReader(meta),
        object: AnyReader(),
        str: StringReader(meta),
    }
    if hint not in plain:
        raise TypeError(f"no reader for {hint!r}")
    return plain[hint]


def _union_reader(hints: tuple[object, ...]) -> Reader:
    branches = [hint for hint in hints if hint is not NoneType]
    reader = reader_of(branches[0]) if len(branches) == 1 else UnionReader(branches)
    return NullableReader(reader) if NoneType in hints else reader


def _annotated(hint: object, meta: msgspec.Meta | None) -> object:
    return hint if meta is None else Annotated[hint, meta]


_REFUSED: Final = object()


def _convert(value: object, hint: Any) -> object:
    """Convert a value that has exactly the type; msgspec does it quickly, also for long arrays."""
    try:
        return msgspec.convert(value, hint)
    except (msgspec.ValidationError, UnicodeEncodeError):
        # The latter comes from a lone surrogate in text that msgspec wants to name as unfit.
        return _REFUSED
