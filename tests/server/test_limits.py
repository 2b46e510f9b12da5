"""The limit on n."""

import json

import pytest

from umbel_server.errors import ApiError, OptionError, error_body
from umbel_server.requests import check_n, read_max_n


@pytest.mark.parametrize(("n", "answers"), [(None, 1), (1, 1), (2, 2), (16384, 16384)])
def test_n_within_the_limit_is_given_back_and_null_stands_for_one(
    n: int | None, answers: int
) -> None:
    assert check_n(n, 16384) == answers


@pytest.mark.parametrize("n", [0, -1, -(10**400)])
def test_n_below_one_is_refused(n: int) -> None:
    with pytest.raises(ApiError) as caught:
        check_n(n, 16384)
    error = json.loads(error_body(caught.value))["error"]
    assert error == {
        "message": f"n must be at least 1, got {n}.",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }


@pytest.mark.parametrize(
    ("n", "limit"), [(16385, 16384), (2**63, 16384), (10**400, 16384), (3, 2), (1, 0)]
)
def test_n_above_the_limit_is_refused(n: int, limit: int) -> None:
    with pytest.raises(ApiError) as caught:
        check_n(n, limit)
    assert caught.value.message == (
        f"n must be at most {limit}, got {n}. To increase this limit, set the "
        "VLLM_MAX_N_SEQUENCES environment variable."
    )
    assert (caught.value.type, caught.value.param) == ("BadRequestError", None)


def test_an_n_that_python_cannot_write_is_refused_too() -> None:
    with pytest.raises(ApiError, match="n must be at most 16384, got <int>"):
        check_n(10**5000, 16384)


@pytest.mark.parametrize(
    ("option", "environ", "limit"),
    [
        (None, {}, 16384),
        (None, {"VLLM_MAX_N_SEQUENCES": "2"}, 2),
        ("8", {"VLLM_MAX_N_SEQUENCES": "2"}, 8),
        ("8", {"VLLM_MAX_N_SEQUENCES": "abc"}, 8),
        (" 5 ", {}, 5),
        ("1_000", {}, 1000),
        ("0", {}, 0),
        (None, {"VLLM_MAX_N_SEQUENCES": "+7\n"}, 7),
    ],
)
def test_the_limit_is_read_like_int_and_the_option_comes_first(
    option: str | None, environ: dict[str, str], limit: int
) -> None:
    assert read_max_n(option, environ) == limit


@pytest.mark.parametrize("text", ["abc", "", "1.5", "0x10", "two\nlines", "9" * 5000])
@pytest.mark.parametrize("source", ["--max-n-sequences", "VLLM_MAX_N_SEQUENCES"])
def test_a_limit_that_is_no_integer_stops_the_start_with_one_line(text: str, source: str) -> None:
    option = text if source.startswith("--") else None
    with pytest.raises(OptionError) as caught:
        read_max_n(option, {"VLLM_MAX_N_SEQUENCES": text})
    message = str(caught.value)
    assert message.startswith(f"{source} must be an integer, got '")
    assert "\n" not in message
    assert len(message) < 120
