"""What the managed engine is told of reasoning."""

import json

import msgspec
import pytest

from umbel_chat.parsers.selection import FormatError
from umbel_server.cli import settings_of
from umbel_server.flags import make_parser
from umbel_server.formats import are_tokens, formats_of, with_formats
from umbel_server.serve import engine_reasoning_parser, shared_arguments

THINKS = "{{ '<|im_start|>' }}{{ '</think>' }}{{ enable_thinking }}"


def settings(folder, *flags):
    parsed = make_parser().parse_args(["serve", str(folder), *flags])
    return msgspec.structs.replace(settings_of(parsed, (), {}), model=str(folder))


def test_the_engine_is_told_of_a_reasoning_parser_by_vllms_first_name(model_folder):
    told = shared_arguments(settings(model_folder, "--reasoning-parser", "glm47"))
    assert told[told.index("--reasoning-parser") + 1] == "glm45"


def test_the_engine_is_told_of_none_that_it_does_not_know_or_whose_markers_are_no_tokens(
    model_folder, tmp_path
):
    assert engine_reasoning_parser(settings(model_folder, "--reasoning-parser", "qwen3")) == "qwen3"
    for name in ("none", "seed_oss", "granite"):
        assert engine_reasoning_parser(settings(model_folder, "--reasoning-parser", name)) is None
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "from umbel_chat.parsers import ReasoningFormat\n"
        "OWN = ReasoningFormat(names=('qwen3',), start='<think>', end='</think>', summary='', models=())\n"
    )
    own = settings(model_folder, "--reasoning-parser", "qwen3", "--tool-parser-plugin", str(plugin))
    assert engine_reasoning_parser(own) is None


def test_markers_are_looked_for_among_the_added_tokens(tmp_path):
    assert not are_tokens(tmp_path, ("<think>",))
    file = {"added_tokens": [{"id": 1, "content": "<think>"}], "model": {"vocab": {"a": 0}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    assert are_tokens(tmp_path, ("<think>",))
    assert not are_tokens(tmp_path, ("<think>", "</think>"))


def test_the_log_says_which_parsers_there_are_and_why(model_folder, caplog):
    caplog.set_level("INFO", "umbel")
    asked = settings(model_folder, "--tool-call-parser", "hermes", "--chat-template", THINKS)
    chosen = with_formats(asked, model_folder, model_folder)
    assert caplog.messages == [
        "tool call parser: hermes (as asked)",
        "reasoning parser: qwen3 (its chat template has '<|im_start|>')",
    ]
    assert [form.names[0] for form in formats_of(chosen)] == ["hermes", "qwen3"]


def test_nothing_is_said_of_parsers_that_there_are_not(model_folder, caplog):
    caplog.set_level("INFO", "umbel")
    chosen = with_formats(settings(model_folder), model_folder, model_folder)
    assert formats_of(chosen) == (None, None)
    assert caplog.messages == []


def test_a_parser_that_does_not_exist_stops_the_start(model_folder):
    asked = settings(model_folder, "--tool-call-parser", "nope")
    with pytest.raises(FormatError, match="there is no tool call parser 'nope'; there are auto, "):
        with_formats(asked, model_folder, model_folder)
