"""The values that flags have, read from the words of a command line."""

import argparse
import json
import math
import re
from collections.abc import Mapping

import msgspec

UNITS: Mapping[str, int] = {
    letter: base**power
    for base, letters in ((1000, "kmgt"), (1024, "KMGT"))
    for power, letter in enumerate(letters, 1)
}


def port_number(text: str) -> int:
    """Read a flag whose value is a port; 0 stands for a free one."""
    # What is out of range would raise deep inside, or be taken modulo 65536 by ZMQ.
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"must be a port from 0 to 65535, got {text!r}")
    return int(text)


def root_path(text: str) -> str:
    """Read a flag whose value is a prefix of paths; gives it with a slash in front, none behind."""
    path = text.strip("/")
    if re.fullmatch(r"[\w.~%/-]*", path, re.ASCII) is None:
        raise argparse.ArgumentTypeError(f"must be a path, got {text!r}")
    return f"/{path}" if path else ""


def json_strings(text: str) -> list[str]:
    """Read a flag whose value is a JSON list of strings."""
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.MsgspecError as error:
        raise argparse.ArgumentTypeError(f"not a JSON list of strings: {error}") from error


def json_object(text: str) -> dict[str, object]:
    """Read a flag whose value is a JSON object."""
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


def count(text: str) -> int:
    """Read a flag whose value is a number of things."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """Read a flag whose value is a time in seconds, 0 included."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # Not a number is neither.
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds from 0 up, got {text!r}")
    return value


def token_count(text: str) -> int:
    """Read a flag whose value is a number of tokens; see `number_of_tokens`."""
    number = number_of_tokens(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"must be a number of tokens, got {text!r}")
    return number


def number_of_tokens(text: str) -> int | None:
    """Read a number of tokens: 8192, 8K (of 1024), 8k or 8.2k (of 1000); None for what is none.

    The rule is vLLM's (vllm/engine/arg_utils.py, human_readable_int).
    """
    match = re.fullmatch(r"(\d{1,15})(\.\d{1,15})?([kmgtKMGT])?", text, re.ASCII)
    if match is None:
        return None
    whole, fraction, unit = match.groups()
    if fraction is None:
        return int(whole) * UNITS.get(unit, 1)
    if unit is None or unit.isupper():
        return None
    return int(float(whole + fraction) * UNITS[unit])
