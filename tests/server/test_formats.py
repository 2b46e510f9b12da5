"""What the managed engine is told of reasoning."""

import json

import msgspec

from umbel_server.cli import settings_of
from umbel_server.flags import make_parser
from umbel_server.formats import are_tokens
from umbel_server.serve import engine_reasoning_parser, shared_arguments


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
