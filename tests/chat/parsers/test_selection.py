"""Formats chosen by name, by a model's files, from packages and from a user's own file."""

import sys
from pathlib import Path

import pytest

from umbel_chat.parsers.detection import ModelFacts
from umbel_chat.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from umbel_chat.parsers.selection import (
    Choice,
    FormatError,
    Formats,
    choose_reasoning_format,
    choose_tool_format,
    formats_of_file,
    installed_formats,
)

QWEN3 = ModelFacts(
    "Qwen/Qwen3-8B",
    "qwen3",
    ("Qwen3ForCausalLM",),
    "<|im_start|><think></think><tool_call></tool_call>{% if enable_thinking %}",
)
PLAIN = ModelFacts("HuggingFaceTB/SmolLM2-135M-Instruct", "llama", (), "<|im_start|>")

MODULE = """\
from umbel_chat.parsers.formats import ReasoningFormat, ToolFormat

def read(source, sink, tools):
    yield from source.rest(sink.content)

TOOL = ToolFormat(
    names=({names}), parse=read, starts=(), summary={summary!r}, models=(), example=""
)
"""
REASONING = """
REASONING = ReasoningFormat(names=("mine",), start="<a>", end="</a>", summary="Mine.", models=())
"""


def module_with(names: str, summary: str = "Mine.") -> str:
    return MODULE.format(names="".join(f"{name!r}, " for name in names.split()), summary=summary)


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_a_name_chooses_its_format_whatever_the_model_is(name: str) -> None:
    choice = choose_tool_format(name, Formats(), PLAIN)
    assert choice == Choice(TOOL_FORMATS[name], "as asked", name)


@pytest.mark.parametrize("name", REASONING_FORMATS)
def test_a_name_chooses_its_way_of_reasoning(name: str) -> None:
    choice = choose_reasoning_format(name, Formats(), PLAIN)
    assert choice == Choice(REASONING_FORMATS[name], "as asked", name)


@pytest.mark.parametrize("name", ["auto", "Auto", "AUTO"])
def test_auto_asks_the_files_of_the_model(name: str) -> None:
    tool = choose_tool_format(name, Formats(), QWEN3)
    assert tool == Choice(TOOL_FORMATS["hermes"], "its chat template has '<tool_call>'", "hermes")
    reasoning = choose_reasoning_format(name, Formats(), QWEN3)
    assert reasoning == Choice(
        REASONING_FORMATS["qwen3"], "its chat template has '<|im_start|>'", "qwen3"
    )


def test_auto_finds_nothing_where_nothing_tells() -> None:
    assert choose_tool_format("auto", Formats(), PLAIN) == Choice(None, "nothing tells of one")
    assert choose_reasoning_format("auto", Formats(), PLAIN).format is None


@pytest.mark.parametrize("name", ["none", "None", "NONE"])
def test_none_looks_for_nothing(name: str) -> None:
    assert choose_tool_format(name, Formats(), QWEN3) == Choice(None, "as asked")
    assert choose_reasoning_format(name, Formats(), QWEN3) == Choice(None, "as asked")


def test_an_unknown_name_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(FormatError) as caught:
        choose_tool_format("hermess", Formats(), QWEN3)
    known = ", ".join(sorted(TOOL_FORMATS))
    assert str(caught.value) == (
        f"there is no tool call parser 'hermess'; there are auto, none, {known}"
    )
    with pytest.raises(FormatError) as caught:
        choose_reasoning_format("hermes", Formats(), QWEN3)
    known = ", ".join(sorted(REASONING_FORMATS))
    assert str(caught.value) == (
        f"there is no reasoning parser 'hermes'; there are auto, none, {known}"
    )


def test_a_name_is_what_it_is_in_upper_and_lower_case() -> None:
    with pytest.raises(FormatError):
        choose_tool_format("Hermes", Formats(), QWEN3)


def test_the_formats_of_a_file_are_found(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(module_with("mine other") + REASONING)
    formats = Formats().with_more(*formats_of_file(plugin))
    for name in ("mine", "other"):
        tool = choose_tool_format(name, formats, PLAIN).format
        assert tool is not None
        assert tool.summary == "Mine."
    reasoning = choose_reasoning_format("mine", formats, PLAIN).format
    assert reasoning is not None
    assert reasoning.start == "<a>"
    assert choose_tool_format("hermes", formats, PLAIN).format is TOOL_FORMATS["hermes"]


@pytest.mark.parametrize("name", ["plugin.py", "json.py"])
def test_a_file_may_define_classes_whose_annotations_are_text(tmp_path: Path, name: str) -> None:
    plugin = tmp_path / name
    state = "from dataclasses import dataclass\n\n@dataclass\nclass State:\n    depth: int = 0\n"
    plugin.write_text("from __future__ import annotations\n" + state + module_with("mine"))
    json = sys.modules["json"]
    assert len(formats_of_file(plugin)) == 1
    # Whatever the file is called, nobody else's module is replaced.
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{path} defines no ToolFormat and no ReasoningFormat"),
        ("TOOL = 'hermes'\n", "{path} defines no ToolFormat and no ReasoningFormat"),
        ("raise KeyError('x')\n", "{path} fails: KeyError('x')"),
        ("import no_such_module\n", "{path} fails: ModuleNotFoundError"),
        ("def read(:\n", "{path} fails: SyntaxError"),
    ],
)
def test_a_file_without_formats_is_refused(tmp_path: Path, text: str, message: str) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(text)
    with pytest.raises(FormatError) as caught:
        formats_of_file(plugin)
    assert str(caught.value).startswith(message.format(path=plugin))


@pytest.mark.parametrize("name", ["missing.py", "folder.py", "plugin.txt"])
def test_what_is_no_python_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "plugin.txt").write_text(module_with("mine"))
    with pytest.raises(FormatError) as caught:
        formats_of_file(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name} is no Python file"


class Packages:
    """Makes distributions that can be found, with entry points."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str, text: str, points: str) -> None:
        (self._folder / f"{name}.py").write_text(text)
        metadata = self._folder / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[umbel.parsers]\n{points}")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    monkeypatch.syspath_prepend(tmp_path)
    return Packages(tmp_path)


def test_packages_register_formats(packages: Packages) -> None:
    points = "mine = umbel_test_ours:TOOL\nreasoning = umbel_test_ours:REASONING\n"
    packages.add("umbel_test_ours", module_with("mine") + REASONING, points)
    formats = installed_formats()
    assert set(formats.tools) == {*TOOL_FORMATS, "mine"}
    assert set(formats.reasoning) == {*REASONING_FORMATS, "mine"}


def test_without_packages_there_are_our_formats() -> None:
    assert installed_formats() == Formats()


def test_a_package_comes_before_umbel_and_a_file_before_both(
    packages: Packages, tmp_path: Path
) -> None:
    text = module_with("hermes", "The package's.")
    packages.add("umbel_test_first", text, "hermes = umbel_test_first:TOOL\n")
    formats = installed_formats()
    assert formats.tools["hermes"].summary == "The package's."
    # The other name of our format still means ours, and so do its rules.
    assert formats.tools["qwen3_json"] is TOOL_FORMATS["hermes"]
    auto = choose_tool_format("auto", formats, QWEN3).format
    assert auto is not None
    assert auto.summary == "The package's."
    plugin = tmp_path / "plugin.py"
    plugin.write_text(module_with("hermes", "The file's."))
    formats = formats.with_more(*formats_of_file(plugin))
    assert formats.tools["hermes"].summary == "The file's."


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("umbel_test_bad:MISSING", "fails: AttributeError"),
        ("umbel_test_nowhere:TOOL", "fails: ModuleNotFoundError"),
        ("umbel_test_bad:read", "is no ToolFormat and no ReasoningFormat"),
    ],
)
def test_an_entry_point_that_gives_no_format_is_refused(
    packages: Packages, point: str, message: str
) -> None:
    packages.add("umbel_test_bad", module_with("mine"), f"bad = {point}\n")
    with pytest.raises(FormatError) as caught:
        installed_formats()
    assert str(caught.value).startswith(f"the parser bad of {point} {message}")
