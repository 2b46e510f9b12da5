"""Bodies, and the errors that answer those that cannot be read."""

import json

import pytest

from umbel_server.errors import (
    ApiError,
    bad_request,
    error_body,
    internal,
    not_found,
    overloaded,
    sanitize_message,
    service_unavailable,
    validation_error,
)
from umbel_server.requests import decode_body


def refusal(body: bytes, content_type: str | None = "application/json") -> ApiError:
    with pytest.raises(ApiError) as caught:
        decode_body(body, content_type)
    assert caught.value.status == 400
    assert caught.value.type == "Bad Request"
    return caught.value


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json;x",
        "application/json; charset=latin-1",
    ],
)
def test_the_case_and_the_parameters_of_the_content_type_do_not_matter(content_type: str) -> None:
    assert decode_body(b'{"a": 1}', content_type) == {"a": 1}


@pytest.mark.parametrize(
    "content_type",
    [None, "", "text/json", "application/vnd.api+json", "application/jsonx", "text/plain"],
)
@pytest.mark.parametrize("body", [b'{"a": 1}', b"{", b""])
def test_another_content_type_is_refused_before_the_body_is_read(
    content_type: str | None, body: bytes
) -> None:
    error = refusal(body, content_type)
    assert error.message == (
        "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
    )
    assert error.param is None


@pytest.mark.parametrize("body", [b"", b"null"])
def test_a_missing_body_is_named_as_such(body: bytes) -> None:
    error = refusal(body)
    assert error.param == "body"
    assert error.message.startswith("1 validation error:\n  {'type': 'missing', 'loc': 'body', ")
    assert error.message.endswith(", 'input': 'None'}")


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"5", b"true", b"NaN"])
def test_a_body_that_is_not_an_object_is_refused(body: bytes) -> None:
    error = refusal(body)
    assert error.param == "body"
    assert "'type': 'model_attributes_type', 'loc': 'body'" in error.message


@pytest.mark.parametrize(
    ("body", "offset", "reason"),
    [
        (b"{", 1, "Expecting property name enclosed in double quotes"),
        (b'{"a": }', 6, "Expecting value"),
        (b"  ", 2, "Expecting value"),
        (b'{"prompt": "x"}x', 15, "Extra data"),
        (b'{"prompt":"a\nb"}', 12, "Invalid control character at"),
        ('{"ö": x}'.encode(), 6, "Expecting value"),
    ],
)
def test_malformed_json_is_reported_with_its_offset(body: bytes, offset: int, reason: str) -> None:
    error = refusal(body)
    assert error.param == f"body.{offset}"
    assert error.message == (
        f"1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{offset}', "
        "'msg': 'JSON decode error', 'input': '<dict of 0 items>', "
        f"'ctx': {{'error': '{reason}'}}}}"
    )


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": NaN}', "nan"),
        (b'{"a": Infinity}', "inf"),
        (b'{"a": 1e400}', "inf"),
        (b'{"a": "\\ud800"}', "'\\ud800'"),
        (b'{"a": 1, "a": 2}', "2"),
        (b"\xef\xbb\xbf" + b'{"a": 2}', "2"),
        ('{"a": 2}'.encode("utf-16"), "2"),
        (b'{"a": ' + b"9" * 400 + b"}", "9" * 400),
    ],
)
def test_what_python_reads_as_json_is_accepted(body: bytes, value: str) -> None:
    assert repr(decode_body(body, "application/json")["a"]) == value


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "\xff"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"n": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_cannot_be_decoded_at_all_is_a_bad_request_without_a_param(body: bytes) -> None:
    assert refusal(body).param is None


def test_an_error_is_compact_json_with_the_status_as_its_code() -> None:
    assert error_body(not_found("The model `x` does not exist.", "model")) == (
        b'{"error":{"message":"The model `x` does not exist.","type":"NotFoundError",'
        b'"param":"model","code":404}}'
    )


@pytest.mark.parametrize(
    ("error", "status", "type_"),
    [
        (bad_request("x"), 400, "BadRequestError"),
        (internal(), 500, "InternalServerError"),
        (service_unavailable("x"), 503, "ServiceUnavailableError"),
        (overloaded("x"), 503, "Service Unavailable"),
    ],
)
def test_each_kind_of_error_has_its_status_and_type(
    error: ApiError, status: int, type_: str
) -> None:
    body = json.loads(error_body(error))["error"]
    assert (body["code"], body["type"], body["param"]) == (status, type_, None)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (validation_error("No."), "No."),
        (validation_error("No.", "n"), "No. (parameter=n)"),
        (validation_error("No.", "n", 0), "No. (parameter=n, value=0)"),
        (validation_error("No.", "n", [1, "a"]), "No. (parameter=n, value=[1, 'a'])"),
    ],
)
def test_a_validation_message_ends_with_parameter_and_value(error: ApiError, message: str) -> None:
    assert error.message == message


def test_a_value_too_deep_to_be_written_is_shown_by_its_type() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    assert validation_error("No.", "n", value).message == "No. (parameter=n, value=<list>)"


def test_an_error_that_quotes_a_lone_surrogate_can_be_encoded() -> None:
    error = bad_request("no `\ud800`", "x\udfff")
    assert json.loads(error_body(error))["error"] == {
        "message": "no `?`",
        "type": "BadRequestError",
        "param": "x?",
        "code": 400,
    }


@pytest.mark.parametrize(
    ("message", "clean"),
    [
        ("<object at 0x7f3a>", "<object>"),
        ("failed in /tmp/a/b here", "failed in <path> here"),
        ("a/home/me/x.y.z", "a<path>"),
        ("/data/models/weights.bin", "<path>"),
        ("/data/models/weights.tar.gz", "<path>.gz"),
        ("a.b/c/d.txt", "a.b<path>"),
        ("/weights.bin", "/weights.bin"),
        ("/data/models", "/data/models"),
        ("/tmp", "/tmp"),
        ("org/model", "org/model"),
        ('no\n  File "x.py", line 3, in f\n    g()\nValueError', "no\nValueError"),
        ("  spaced out  ", "spaced out"),
        ("use `n` of 1/2 or http://x", "use `n` of 1/2 or http://x"),
    ],
)
def test_messages_show_no_addresses_tracebacks_or_paths(message: str, clean: str) -> None:
    assert sanitize_message(message) == clean


@pytest.mark.parametrize("piece", ["/a", "/a.b", " ", 'File "', "/home", " at 0x1", "\n"])
def test_cleaning_a_long_message_takes_linear_time(piece: str) -> None:
    # In quadratic time this would never end.
    sanitize_message('File "x' + piece * 200_000)
