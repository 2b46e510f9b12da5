"""The values that flags have, read from the words of a command line."""

import argparse
import json
import math
import re

import msgspec


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
