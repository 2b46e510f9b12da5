import re
import subprocess
import sys
from pathlib import Path

import pytest

from umbel_engine.mock_scenario import Scenario

MOCK_ENGINE = Path(sys.executable).with_name("umbel-mock-engine")


@pytest.mark.parametrize("document", ["packages/engine/README.md", "docs/mock-engine.md"])
def test_the_programs_of_the_documents_print_what_they_say(programs_of, run_program, document):
    for source, output in programs_of(document):
        assert run_program(source) == output


def test_the_documented_flags_of_the_mock_engine_are_those_that_it_has(document_text):
    usage = subprocess.run([MOCK_ENGINE, "--help"], capture_output=True, text=True, check=True)
    flags = set(re.findall(r"^  (--[\w-]+)", usage.stdout, re.MULTILINE))
    table = re.findall(r"^\| `(--[\w-]+)", document_text("docs/mock-engine.md"), re.MULTILINE)
    assert set(table) == flags


def test_the_documented_scenario_can_be_read(blocks_of, tmp_path, fan):
    (block,) = (block for block in blocks_of("docs/mock-engine.md") if block.language == "json")
    path = tmp_path / "scenario.json"
    path.write_text(block.text)
    scenario = Scenario.read(path)
    assert scenario.rule(fan(prompt=[41, 42]).request).token_ids == [5, 6, 7]
    assert scenario.rule(fan(prompt=[41]).request).eos_after == 10
