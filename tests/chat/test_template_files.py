"""Chat templates in the files of a model."""

import json
from pathlib import Path

import pytest

from umbel_chat import ChatTemplateError
from umbel_chat.template_files import load_chat_template, load_tool_template


def test_a_given_template_may_be_a_file_or_the_template_itself(tmp_path: Path) -> None:
    file = tmp_path / "given.jinja"
    file.write_text("{{ 'é' }}\n", encoding="utf-8")
    (tmp_path / "chat_template.jinja").write_text("of the model")
    assert load_chat_template(tmp_path, str(file)) == "{{ 'é' }}\n"
    assert load_chat_template(tmp_path, "{{ messages }}") == "{{ messages }}"
    assert load_chat_template(tmp_path, "a\nb") == "a\nb"


def test_a_given_template_that_looks_like_a_path_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ChatTemplateError, match="looks like a file path, but it failed to be"):
        load_chat_template(tmp_path, str(tmp_path / "missing.jinja"))


def write_config(folder: Path, template: object) -> None:
    config = {"bos_token": "<s>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def test_the_template_file_of_a_model_comes_before_its_tokenizer_config(tmp_path: Path) -> None:
    write_config(tmp_path, "config")
    assert load_chat_template(tmp_path) == "config"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert load_chat_template(tmp_path) == "file"


@pytest.mark.parametrize(
    ("templates", "expected"),
    [
        ([{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}], "d"),
        ([{"name": "rag", "template": "r"}], None),
        ({"default": "d", "rag": "r"}, "d"),
        ([5], None),
        (None, None),
    ],
)
def test_of_several_templates_the_default_one_is_taken(
    tmp_path: Path, templates: object, expected: str | None
) -> None:
    write_config(tmp_path, templates)
    assert load_chat_template(tmp_path) == expected


@pytest.mark.parametrize(
    ("templates", "expected"),
    [
        ([{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}], "t"),
        ({"default": "d", "tool_use": "t"}, "t"),
        ({"tool_use": "t"}, "t"),
        ([{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}], None),
        ([{"name": ["tool_use"], "template": "t"}, {"name": "tool_use", "template": 5}], None),
        ("d", None),
        (None, None),
    ],
)
def test_of_several_templates_one_may_be_for_tools(
    tmp_path: Path, templates: object, expected: str | None
) -> None:
    write_config(tmp_path, templates)
    assert load_tool_template(tmp_path) == expected


def test_templates_in_files_come_before_all_of_the_tokenizer_config(tmp_path: Path) -> None:
    write_config(tmp_path, {"default": "d", "tool_use": "t"})
    (tmp_path / "chat_template.jinja").write_text("file")
    assert (load_chat_template(tmp_path), load_tool_template(tmp_path)) == ("file", None)
    more = tmp_path / "additional_chat_templates"
    more.mkdir()
    (more / "rag.jinja").write_text("r")
    (more / "tool_use.jinja").write_text("{{ 'é' }}", encoding="utf-8")
    assert (load_chat_template(tmp_path), load_tool_template(tmp_path)) == ("file", "{{ 'é' }}")
    (tmp_path / "chat_template.jinja").unlink()
    assert (load_chat_template(tmp_path), load_tool_template(tmp_path)) == (None, "{{ 'é' }}")


def test_a_given_template_is_for_all_requests(tmp_path: Path) -> None:
    write_config(tmp_path, {"default": "d", "tool_use": "t"})
    assert load_chat_template(tmp_path, "{{ messages }}") == "{{ messages }}"
    assert load_tool_template(tmp_path, "{{ messages }}") is None


def test_a_model_may_have_no_template(tmp_path: Path) -> None:
    assert load_chat_template(tmp_path) is None
    assert load_tool_template(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text("[]")
    assert load_chat_template(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("chat_template.jinja", b"\xff"),
        ("tokenizer_config.json", b"{"),
        ("additional_chat_templates/tool_use.jinja", b"\xff"),
    ],
)
def test_a_template_that_cannot_be_read_is_an_error(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ChatTemplateError, match=r"^cannot read the chat template from "):
        load_chat_template(tmp_path)
