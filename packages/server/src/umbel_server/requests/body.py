"""The body: from the bytes of a request to the JSON object in them."""

import json

import msgspec

from umbel_server.errors import ApiError, invalid_body
from umbel_server.requests.faults import Faults

JSON_TYPE = "application/json"

MAX_NESTED = 512 * 1024
"""How many arrays, objects and keys a body may have.

Each takes many times its bytes in memory, and time in which nothing else happens.  They are counted
by their characters, within texts too, so that a body is judged before it is decoded; a text with so
many of them is longer than what models read.
"""


def decode_body(body: bytes, content_type: str | None) -> dict[str, object]:
    """Decode the JSON object that a request carries; raises ApiError.

    The content type is judged first; its case and its parameters do not matter.  As in vLLM, NaN,
    Infinity and numbers that overflow are accepted, of duplicate keys the last counts, and UTF-16
    and UTF-32 are recognised.
    """
    if (content_type or "").lower().split(";", 1)[0] != JSON_TYPE:
        raise invalid_body(
            f"1 validation error:\n  Unsupported Media Type: Only '{JSON_TYPE}' is allowed"
        )
    if len(body) > MAX_NESTED and sum(map(body.count, (b"[", b"{", b":"))) > MAX_NESTED:
        raise invalid_body(
            f"The body has more than {MAX_NESTED} arrays, objects and keys: characters `[`, `{{` and "
            "`:`, counted within texts too."
        )
    value = _decode(body) if body else None
    if not isinstance(value, dict):
        raise _not_an_object(value)
    return value


def _decode(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        # What msgspec refuses may still be JSON to Python, which vLLM decodes with; if not, its
        # message and its offset are the ones that clients know.
        return _decode_leniently(body)


def _decode_leniently(body: bytes) -> object:
    try:
        value: object = json.loads(body)
    except json.JSONDecodeError as error:
        faults = Faults()
        location = ("body", error.pos)
        faults.add("json_invalid", location, "JSON decode error", {}, {"error": error.msg})
        raise faults.error() from None
    except UnicodeDecodeError:
        raise invalid_body("The body could not be read: it is not valid UTF-8.") from None
    except RecursionError:
        raise invalid_body("The body could not be read: it is nested too deeply.") from None
    except ValueError:
        raise invalid_body("The body could not be read: a number has too many digits.") from None
    return value


def _not_an_object(value: object) -> ApiError:
    faults = Faults()
    if value is None:
        faults.add("missing", ("body",), "a body is required", None)
    else:
        faults.add("model_attributes_type", ("body",), "must be an object", value)
    return faults.error()
