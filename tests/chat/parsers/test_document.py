"""The parser that the document shows works as it says."""

import re
from pathlib import Path

from umbel_chat.events import ArgumentsDelta, ContentDelta, ToolCallEnd, ToolCallStart
from umbel_chat.parsers.model_parsers import ModelParsers
from umbel_chat.parsers.selection import Formats, formats_of_file

from .test_transcripts import merged
from .tokens import tokenizer_with

DOCUMENT = Path(__file__).parents[3] / "docs" / "parsers.md"


def test_a_parser_of_your_own_can_be_written_like_that(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    plugin = tmp_path / "plugin.py"
    plugin.write_text(code)
    form = Formats().with_more(*formats_of_file(plugin)).tools["upper_case"]
    parser = ModelParsers(tokenizer_with(()), form, None).new_parser("closed", {})
    text = "Well. " + form.example + " Done."
    events = [event for character in text for event in parser.feed(character, [])]
    assert merged(events + parser.finish()) == [
        ContentDelta("Well."),
        ToolCallStart("get_time"),
        ArgumentsDelta("{}"),
        ToolCallEnd(),
        ContentDelta(" Done."),
    ]
