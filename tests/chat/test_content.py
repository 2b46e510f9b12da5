"""Content parts, and the detection of the format that a template wants."""

import pytest

from umbel_chat.content import join_parts, read_parts
from umbel_chat.errors import InvalidChatError
from umbel_chat.template import ChatTemplate

EACH_MESSAGE = "{% for message in messages %}"
EACH_PART = "{% for part in message.content %}{{ part.text }}{% endfor %}"
END = "{% endfor %}"

STRING_TEMPLATES = {
    "content is printed": EACH_MESSAGE + "{{ message.content }}" + END,
    "something else of the message is looped over": EACH_MESSAGE
    + "{% for call in message.tool_calls %}{{ call }}{% endfor %}"
    + END,
    "a variable of another name is looped over": EACH_MESSAGE
    + "{% set text = message.content %}{% for part in text %}{{ part }}{% endfor %}"
    + END,
    "two variables are unpacked from the content": EACH_MESSAGE
    + "{% for key, value in message.content %}{{ key }}{% endfor %}"
    + END,
    "a macro loops over a parameter that never is content": (
        "{% macro show(content) %}{% for part in content %}{{ part }}{% endfor %}{% endmacro %}"
        + EACH_MESSAGE
        + "{{ show(message.tool_calls) }}"
        + END
    ),
    "only the first message's content is looped over": (
        "{% for part in messages[0].content %}{{ part }}{% endfor %}"
    ),
    "there is nothing to loop over": "hello",
}

OPENAI_TEMPLATES = {
    "parts by attribute": EACH_MESSAGE + EACH_PART + END,
    "parts by item": EACH_MESSAGE + EACH_PART.replace(".content", "['content']") + END,
    "parts through a filter": EACH_MESSAGE
    + EACH_PART.replace(".content", ".content | selectattr('type', 'equalto', 'text')")
    + END,
    "parts of a slice of the messages": EACH_MESSAGE.replace("messages", "messages[1:]")
    + EACH_PART
    + END,
    "parts of messages under another name": (
        "{% set rest = messages[1:] %}{% set others = rest %}"
        + EACH_MESSAGE.replace("messages", "others")
        + EACH_PART
        + END
    ),
    "parts of messages in a namespace": (
        "{% set ns = namespace(rest=messages) %}"
        + EACH_MESSAGE.replace("messages", "ns.rest")
        + EACH_PART
        + END
    ),
    "parts of messages put into a namespace": (
        "{% set ns = namespace() %}{% set ns.rest = messages %}"
        + EACH_MESSAGE.replace("messages", "ns.rest")
        + EACH_PART
        + END
    ),
    "parts of a variable called content": EACH_MESSAGE
    + "{% set content = message.content %}{% for part in content %}{{ part }}{% endfor %}"
    + END,
    "parts of a macro's parameter": (
        "{% macro show(it) %}{% for part in it %}{{ part }}{% endfor %}{% endmacro %}"
        + EACH_MESSAGE
        + "{{ show(message.content) }}"
        + END
    ),
    "parts of a macro's named parameter": (
        "{% macro show(a, it) %}{% for part in it %}{{ part }}{% endfor %}{% endmacro %}"
        + EACH_MESSAGE
        + "{{ show(1, it=message['content']) }}"
        + END
    ),
    "parts in a generation block": EACH_MESSAGE
    + "{% generation %}"
    + EACH_PART
    + "{% endgeneration %}"
    + END,
}


@pytest.mark.parametrize("source", STRING_TEMPLATES.values(), ids=STRING_TEMPLATES)
def test_the_format_is_string_when(source: str) -> None:
    assert ChatTemplate(source).content_format == "string"


@pytest.mark.parametrize("source", OPENAI_TEMPLATES.values(), ids=OPENAI_TEMPLATES)
def test_the_format_is_openai_when_there_is_a_loop_over(source: str) -> None:
    assert ChatTemplate(source).content_format == "openai"


def test_without_a_template_the_format_is_string() -> None:
    assert ChatTemplate(None).content_format == "string"


def read(*parts: object) -> list[dict[str, object]]:
    return read_parts(parts, "tiny", "messages.0.content")


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("a", "a"),
        ({"type": "text", "text": "a"}, "a"),
        ({"type": "input_text", "text": "a"}, "a"),
        ({"type": "output_text", "text": "a"}, "a"),
        ({"type": "refusal", "refusal": "no"}, "no"),
        ({"type": "thinking", "thinking": "hm", "closed": True}, "hm"),
        ({"type": "text", "text": ""}, ""),
        ({"type": "text", "text": "a", "uuid": "u", "name": "n"}, "a"),
    ],
)
def test_parts_that_carry_text_become_text_parts(part: object, text: str) -> None:
    assert read(part) == [{"type": "text", "text": text}]


def test_fields_that_the_api_does_not_know_reach_the_template() -> None:
    part = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    assert read(part) == [part]


@pytest.mark.parametrize(
    "part", [{"type": "text", "text": None}, {"type": "refusal", "refusal": None}]
)
def test_a_null_text_is_skipped(part: object) -> None:
    assert read(part, "b") == [{"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    "part",
    [{"type": "tool_reference", "name": "f"}, {"tool_reference": True, "name": "f"}],
)
def test_a_tool_reference_is_kept_for_the_template(part: object) -> None:
    assert read(part) == [{"type": "tool_reference", "name": "f"}]
    assert join_parts(read(part, "b")) == "f\nb"


def test_text_parts_are_joined_with_line_breaks_and_empty_ones_leave_none() -> None:
    assert join_parts(read("a", "", "b\n", "c")) == "a\nb\n\nc"
    assert join_parts([]) == ""


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://localhost/x.png"}},
        {"type": "image_url"},
        {"image_url": "data:,"},
        {"type": "input_image", "image_url": "x"},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": "x"}},
        {"type": "video_url", "video_url": {"url": "x"}},
    ],
)
def test_media_are_refused_in_the_name_of_the_model(part: object) -> None:
    with pytest.raises(InvalidChatError, match=r"^tiny is not a multimodal model$") as caught:
        read("text", part)
    assert caught.value.parameter is None


@pytest.mark.parametrize(
    ("part", "message", "parameter"),
    [
        (5, "messages.0.content.0 must be an object or a string.", None),
        (None, "messages.0.content.0 must be an object or a string.", None),
        (["a"], "messages.0.content.0 must be an object or a string.", None),
        ({}, "Missing 'type' field in multimodal part.", "type"),
        ({"text": "a"}, "Missing 'type' field in multimodal part.", "type"),
        ({"type": 5}, "Invalid 'type' field in multimodal part.", "type"),
        ({"type": "text"}, "messages.0.content.0.text must be a string.", None),
        ({"type": "text", "text": 5}, "messages.0.content.0.text must be a string.", None),
        ({"type": "input_text", "text": None}, "messages.0.content.0.text must be a string.", None),
        ({"type": "tool_reference"}, "messages.0.content.0.name must be a string.", None),
        ({"type": "image_embeds", "image_embeds": "eA=="}, "The model is not multimodal.", None),
        (
            {"type": "file", "file": {"file_id": "x"}},
            "Unsupported chat content part type: 'file'. Supported types: audio_embeds, audio_url, "
            "image_embeds, image_pil, image_url, input_audio, input_image, input_text, output_text, "
            "prompt_embeds, refusal, text, thinking, tool_reference, video_embeds, video_url.",
            "type",
        ),
        (
            {"type": "prompt_embeds", "data": "eA=="},
            "You must set `--enable-prompt-embeds` to input `prompt_embeds`",
            "prompt_embeds",
        ),
    ],
)
def test_what_is_no_content_part_is_refused_in_clear_words(
    part: object, message: str, parameter: str | None
) -> None:
    with pytest.raises(InvalidChatError) as caught:
        read(part)
    assert (str(caught.value), caught.value.parameter) == (message, parameter)
