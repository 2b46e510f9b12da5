"""The recorded answers of the reference, one file per group of rows.

A file is JSON, laid out so that a change shows as a change of few lines: every event of a stream
and everything that the engine was asked has a line of its own.  Where a text is JSON in its
shortest form it stands as a value, else as a string.
"""

import json
from pathlib import Path

from .observed import EVENT, Answer, events_of

FOLDER = Path(__file__).with_name("recorded")


def write(path, answers):
    """Write the answers of a file, by the names of their rows."""
    rows = ",\n".join(f"{short(name)}: {layout(answer)}" for name, answer in answers.items())
    path.write_text(f"{{\n{rows}\n}}\n")


def read(path):
    """Read the answers of a file."""
    found = json.loads(path.read_text())
    return {name: answer_of(item) for name, item in found.items()}


def layout(answer):
    head = {"status": answer.status, "headers": answer.headers}
    lines = [f" {short(key)}: {short(value)}" for key, value in head.items()]
    events = events_of(answer.text, answer.headers)
    if events is None:
        lines.append(f' "body": {short(value_of(answer.text))}')
    else:
        lines.append(listed("events", map(value_of, events)))
    if answer.wire:
        lines.append(listed("engine", siblings(answer.wire)))
    if answer.aborted:
        lines.append(f' "aborted": {short(answer.aborted)}')
    return "{\n" + ",\n".join(lines) + "}"


def answer_of(item):
    if "events" in item:
        text = "".join(f"{EVENT}{text_of(event)}\n\n" for event in item["events"])
    else:
        text = text_of(item["body"])
    wire = [sample for group in item.get("engine", ()) for sample in separate(group)]
    return Answer(item["status"], item["headers"], text, wire, item.get("aborted", []))


def value_of(text):
    """Give the JSON value of a text, or the text if its form says more than the value."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if not isinstance(value, str) and short(value) == text else text


def text_of(value):
    return value if isinstance(value, str) else short(value)


def siblings(wire):
    """Put what siblings share together, next to the ids and seeds in which they differ."""
    groups = []
    for sample in wire:
        rest = {key: value for key, value in sample.items() if key != "request_id"}
        params = dict(rest["sampling_params"])
        seed = params.pop("seed", None)
        rest["sampling_params"] = params
        if not groups or groups[-1]["shared"] != rest:
            groups.append({"ids": [], "seeds": [], "shared": rest})
        groups[-1]["ids"].append(sample["request_id"])
        groups[-1]["seeds"].append(seed)
    return groups


def separate(group):
    """Give the samples of a group as they were sent."""
    for request_id, seed in zip(group["ids"], group["seeds"], strict=True):
        params = dict(group["shared"]["sampling_params"])
        if seed is not None:
            params["seed"] = seed
        yield {"request_id": request_id, **group["shared"], "sampling_params": params}


def listed(name, values):
    return f' "{name}": [' + ",".join(f"\n  {short(value)}" for value in values) + "]"


def short(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
