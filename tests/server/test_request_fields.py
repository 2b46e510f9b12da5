"""Converting decoded JSON into typed fields."""

import math
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from umbel_server.errors import ApiError
from umbel_server.requests.fields import StructReader


class Options(msgspec.Struct, frozen=True):
    flag: bool | None = False


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    count: int = 1
    maybe: int | None = None
    ratio: float = 1.0
    flag: bool = False
    small: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = 0
    side: Literal["left", "right"] = "left"
    stop: str | Annotated[list[str], Meta(max_length=4)] | None = None
    ids: list[int] = []
    bias: dict[str, float] = {}
    options: Options | None = None
    prompt: list[int] | list[list[int]] | str | list[str] | None = None
    salt: Annotated[str, Meta(min_length=1, max_length=3)] = "x"
    extra: object = None


reader = StructReader(Thing)


def read(**fields: object) -> Thing:
    return reader.convert({"name": "x", **fields})


def refusal(body: dict[str, object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        reader.convert(body)
    assert (caught.value.status, caught.value.type) == (400, "Bad Request")
    return caught.value


def kinds(error: ApiError) -> list[tuple[str, str]]:
    """The kind and the place of each fault that the message lists."""
    lines = error.message.split("\n  ")[1:]
    return [(line.split("'")[3], line.split("'")[7]) for line in lines if line.startswith("{")]


def test_what_is_not_given_has_its_default() -> None:
    assert reader.convert({"name": "x"}) == Thing(name="x")


def test_unknown_keys_are_ignored() -> None:
    assert read(best_of=3, Name=5) == Thing(name="x")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (2, 2),
        (2.0, 2),
        (1e2, 100),
        ("2", 2),
        (" 2 ", 2),
        ("+3", 3),
        ("-3", -3),
        ("1_000", 1000),
        ("2.0", 2),
        (2**63, 2**63),
        (10**400, 10**400),
        ("9" * 30, int("9" * 30)),
    ],
)
def test_integers_are_read_as_pydantic_reads_them(value: object, number: int) -> None:
    count = read(count=value).count
    assert count == number
    assert type(count) is int


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("two", "int_parsing"),
        ("", "int_parsing"),
        ("2.5", "int_parsing"),
        ("1e2", "int_parsing"),
        ("1.", "int_parsing"),
        ("0x10", "int_parsing"),
        ("1__0", "int_parsing"),
        ("٣", "int_parsing"),
        ("\ud800", "int_parsing"),
        ("9" * 5000, "int_parsing_size"),
        (1.5, "int_from_float"),
        (1e19, "int_parsing_size"),
        (-1e300, "int_parsing_size"),
        (math.nan, "finite_number"),
        (math.inf, "finite_number"),
        (None, "int_type"),
        ([], "int_type"),
        ({}, "int_type"),
        (True, "int_type"),
    ],
)
def test_what_is_not_an_integer_is_refused(value: object, kind: str) -> None:
    error = refusal({"name": "x", "count": value})
    assert kinds(error) == [(kind, "body.count")]
    assert error.param == "body.count"


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        ("0.5", 0.5),
        (" 0.5 ", 0.5),
        ("1_0.5", 10.5),
        ("-.5", -0.5),
        ("1e400", math.inf),
        ("\u00a05", 5),
    ],
)
def test_numbers_are_read_as_pydantic_reads_them(value: object, number: float) -> None:
    ratio = read(ratio=value).ratio
    assert ratio == number
    assert type(ratio) is float


@pytest.mark.parametrize("value", [math.nan, "nan", "NaN"])
def test_nan_is_a_number(value: object) -> None:
    assert math.isnan(read(ratio=value).ratio)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x", "float_parsing"),
        ("٣", "float_parsing"),
        (True, "float_type"),
        ([], "float_type"),
        (None, "float_type"),
        (10**400, "float_type"),
    ],
)
def test_what_is_not_a_number_is_refused(value: object, kind: str) -> None:
    assert kinds(refusal({"name": "x", "ratio": value})) == [(kind, "body.ratio")]


@pytest.mark.parametrize("value", [True, 1, 1.0, "1", "true", "TRUE", "t", "yes", "y", "on"])
def test_true_can_be_written_in_many_ways(value: object) -> None:
    assert read(flag=value).flag is True


@pytest.mark.parametrize("value", [False, 0, 0.0, "0", "false", "F", "no", "n", "off"])
def test_false_can_be_written_in_many_ways(value: object) -> None:
    assert read(flag=value).flag is False


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2, "bool_parsing"),
        (2.0, "bool_parsing"),
        (2**63, "bool_type"),
        ("maybe", "bool_parsing"),
        (" true ", "bool_parsing"),
        (1.5, "bool_type"),
        ([], "bool_type"),
        (None, "bool_type"),
    ],
)
def test_what_is_not_a_boolean_is_refused(value: object, kind: str) -> None:
    assert kinds(refusal({"name": "x", "flag": value})) == [(kind, "body.flag")]


def test_null_is_accepted_only_where_the_type_allows_it() -> None:
    assert read(maybe=None, stop=None, options=None, prompt=None) == Thing(name="x")
    body: dict[str, object] = {"name": None, "side": None, "ids": None, "bias": None}
    assert kinds(refusal(body)) == [
        ("string_type", "body.name"),
        ("literal_error", "body.side"),
        ("list_type", "body.ids"),
        ("dict_type", "body.bias"),
    ]


@pytest.mark.parametrize(
    ("value", "kind", "limit"),
    [
        (-2, "greater_than_equal", "'ctx': {'ge': -1}"),
        (2**63, "less_than_equal", "'ctx': {'le': 9223372036854775807}"),
        ("9" * 30, "less_than_equal", "'ctx': {'le': 9223372036854775807}"),
    ],
)
def test_limits_are_kept(value: object, kind: str, limit: str) -> None:
    error = refusal({"name": "x", "small": value})
    assert kinds(error) == [(kind, "body.small")]
    assert limit in error.message


def test_the_length_of_text_is_limited() -> None:
    assert kinds(refusal({"name": "x", "salt": ""})) == [("string_too_short", "body.salt")]
    assert kinds(refusal({"name": "x", "salt": "abcd"})) == [("string_too_long", "body.salt")]


def test_a_required_field_is_missed() -> None:
    assert kinds(refusal({})) == [("missing", "body.name")]


def test_the_faults_of_every_branch_of_a_union_are_listed() -> None:
    error = refusal({"name": "x", "stop": ["a"] * 5})
    assert kinds(error) == [("string_type", "body.stop"), ("too_long", "body.stop")]
    assert "'ctx': {'field_type': 'List', 'max_length': 4, 'actual_length': 5}" in error.message
    assert kinds(refusal({"name": "x", "stop": ["a", 1]})) == [
        ("string_type", "body.stop"),
        ("string_type", "body.stop.1"),
    ]


@pytest.mark.parametrize(
    ("value", "prompt"),
    [
        ("a", "a"),
        (["a", "b"], ["a", "b"]),
        (["1", "2"], ["1", "2"]),
        ([1, 2], [1, 2]),
        ([1.0, "2"], [1, 2]),
        ([[1], [2.0], ["3"]], [[1], [2], [3]]),
        ([[]], [[]]),
        ([], []),
        ("\ud800", "\ud800"),
        (["\ud800"], ["\ud800"]),
    ],
)
def test_a_union_takes_the_type_that_fits_exactly_before_one_that_fits(
    value: object, prompt: object
) -> None:
    assert read(prompt=value).prompt == prompt


def test_a_mixed_list_fits_no_branch_of_a_union() -> None:
    error = refusal({"name": "x", "prompt": ["a", 1]})
    assert error.message.startswith("5 validation errors:\n")
    assert error.param == "body.prompt.0"


def test_faults_inside_objects_and_arrays_have_their_place() -> None:
    body: dict[str, object] = {
        "name": "x",
        "ids": [1, "x", True],
        "bias": {"7": "1.5", "8": None},
        "options": {"flag": 3},
    }
    assert kinds(refusal(body)) == [
        ("int_parsing", "body.ids.1"),
        ("int_type", "body.ids.2"),
        ("float_type", "body.bias.8"),
        ("bool_parsing", "body.options.flag"),
    ]
    assert kinds(refusal({"name": "x", "options": 5})) == [
        ("model_attributes_type", "body.options")
    ]


def test_objects_are_read_into_structs() -> None:
    assert read(options={"flag": "yes", "other": 1}).options == Options(flag=True)
    assert read(bias={"7": "1.5"}).bias == {"7": 1.5}
    assert read(extra=[{"a": None}]).extra == [{"a": None}]


def test_faults_are_listed_in_the_order_in_which_the_fields_are_declared() -> None:
    body: dict[str, object] = {"flag": "z", "ratio": "y", "count": "x", "name": 5}
    error = refusal(body)
    assert [place for _, place in kinds(error)] == [
        "body.name",
        "body.count",
        "body.ratio",
        "body.flag",
    ]
    assert error.message.startswith("4 validation errors:\n")
    assert error.param == "body.name"


def test_ten_faults_are_listed_and_the_others_counted() -> None:
    error = refusal({"name": "x", "ids": ["x"] * 30})
    assert len(kinds(error)) == 10
    assert error.message.startswith("30 validation errors:\n")
    assert error.message.endswith("\n  ...and 20 more errors")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.5, "'input': '1.5'"),
        ("it's", "'input': \"it's\""),
        ("x" * 300, "'input': '" + "x" * 200 + "...[truncated]'"),
        ([1] * 300, "'input': '<list of 300 items>'"),
        ({"a": 1}, "'input': '<dict of 1 items>'"),
        ("a/tmp/b/c.py", "'input': 'a<path>'"),
    ],
)
def test_the_value_at_fault_is_shown_in_short(value: object, shown: str) -> None:
    assert shown in refusal({"name": "x", "count": value}).message


def test_a_long_line_is_cut() -> None:
    error = refusal({"name": "x", "bias": {"k" * 2000: None}})
    assert error.message.endswith("...[truncated]")
    assert len(error.message) < 1100


def test_a_type_without_a_reader_is_refused_when_the_reader_is_made() -> None:
    class Odd(msgspec.Struct):
        when: complex = 0j

    with pytest.raises(TypeError, match="complex"):
        StructReader(Odd)
