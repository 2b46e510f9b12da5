"""How vLLM's tests end in front of umbel: the table in `outcomes.toml`, and its text form."""

import json
import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
OUTCOMES = HERE / "outcomes.toml"
DOCUMENT = HERE.parents[1] / "docs" / "upstream-tests.md"
BEGIN, END = "<!-- tests: begin -->", "<!-- tests: end -->"

HEADER = """\
# How the tests of vLLM's suite end in front of umbel: "passed", "failed: why", "varies: why"
# or, when it is not run, "not applicable: why".  "*" stands for all tests of a module, a name without parameters for all of them.
# Written by `python -m tests.upstream --update`; reasons are kept.
"""


def read():
    """Give the outcomes by module and test."""
    return tomllib.loads(OUTCOMES.read_text()) if OUTCOMES.is_file() else {}


def write(outcomes):
    lines = [HEADER]
    for module, tests in sorted(outcomes.items()):
        lines.append(f"[{json.dumps(module)}]")
        lines += [f"{json.dumps(test)} = {json.dumps(text)}" for test, text in tests.items()]
        lines.append("")
    OUTCOMES.write_text("\n".join(lines))


def expected(outcomes, test):
    """Give what the table says of a test, None if nothing."""
    module, _, name = test.partition("::")
    tests = outcomes.get(module, {})
    for key in (name, name.partition("[")[0], "*"):
        if key in tests:
            return tests[key]
    return None


def left_out(outcomes):
    """Give the tests and modules that are not run, as pytest writes them."""
    return [
        module if test == "*" else f"{module}::{test}"
        for module, tests in outcomes.items()
        for test, text in tests.items()
        if text.startswith("not applicable")
    ]


def differences(outcomes, results):
    """Give a line for each result that is not what the table says."""
    lines = []
    for test, (outcome, message) in results.items():
        text = expected(outcomes, test)
        if text is None:
            lines.append(f"{test}: {outcome}, and not in the table. {message}")
        elif text.partition(":")[0] not in (outcome, "varies"):
            lines.append(f"{test}: {outcome}, expected: {text}. {message}")
    return lines


def update(outcomes, results):
    """Put results into the table; a test that still fails keeps its reason."""
    for test, (outcome, message) in results.items():
        module, _, name = test.partition("::")
        text = expected(outcomes, test)
        if text is None or text.partition(":")[0] not in (outcome, "varies"):
            text = "passed" if outcome == "passed" else f"{outcome}: {message}"
            if outcome in ("skipped", "no server"):
                text = f"not applicable: {message}"
            outcomes.setdefault(module, {})[name] = text


def markdown(outcomes):
    """Give the summary and the table of every module."""
    counts = {"passed": 0, "failed": 0, "varies": 0, "not applicable": 0}
    parts = []
    for module, tests in sorted(outcomes.items()):
        rows = []
        for test, text in tests.items():
            outcome, _, reason = text.partition(": ")
            counts[outcome] += 1
            rows.append(
                f"| {'all of it' if test == '*' else code(test)} | {outcome} | {cell(reason)} |"
            )
        name = module.removeprefix("tests/")
        parts.append(f"### {name}\n\n| Test | Outcome | Why |\n|---|---|---|\n" + "\n".join(rows))
    total = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return f"{total[0].upper()}{total[1:]}.\n\n" + "\n\n".join(parts) + "\n"


def code(text):
    text = re.sub(r"\s+", " ", cell(text))
    return f"`{text if len(text) <= 110 else text[:107] + '...'}`"


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def document_text(outcomes):
    """Give the document with the table of now between its markers."""
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{markdown(outcomes)}\n{END}{after}"
