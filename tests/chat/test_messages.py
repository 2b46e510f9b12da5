"""Messages as clients send them, and as templates take them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel_chat.content_format import ContentFormat
from umbel_chat.errors import InvalidChatError, InvalidMessageError
from umbel_chat.messages import Message, fold_developer_messages, read_messages


def read(message: object, content_format: ContentFormat = "string") -> Message:
    return read_messages([message], content_format, "tiny")[0]


def text(value: str) -> dict[str, object]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize("role", ["user", "system", "assistant", "pirate", ""])
def test_content_takes_the_form_of_the_template_for_any_role(role: str) -> None:
    parts = [text("a"), text("b")]
    assert read({"role": role, "content": parts}) == {"role": role, "content": "a\nb"}
    assert read({"role": role, "content": parts}, "openai") == {"role": role, "content": parts}
    assert read({"role": role, "content": "a"}) == {"role": role, "content": "a"}
    assert read({"role": role, "content": "a"}, "openai") == {"role": role, "content": [text("a")]}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user"},
        {"role": "user", "content": []},
        {"role": "assistant", "content": None},
        {"role": "function", "name": "f", "content": None},
    ],
)
def test_a_message_without_content_is_empty(message: dict[str, object]) -> None:
    assert read(message)["content"] == ""
    assert read(message, "openai")["content"] == []


@pytest.mark.parametrize("content_format", ["string", "openai"])
def test_the_text_of_a_tool_result_is_one_string_in_both_formats(
    content_format: ContentFormat,
) -> None:
    message = {"role": "tool", "tool_call_id": "c", "content": [text("a"), text("b")]}
    assert read(message, content_format) == {**message, "content": "a\nb"}
    assert read({"role": "tool"}, content_format) == {"role": "tool", "content": ""}


def test_a_tool_result_that_refers_to_tools_keeps_its_parts() -> None:
    parts = [{"type": "tool_reference", "name": "f"}, text("b")]
    message = {"role": "tool", "tool_call_id": None, "content": parts}
    assert read(message, "openai") == message
    assert read(message) == {**message, "content": "f\nb"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"city": "Zürich", "n": [1, null]}', {"city": "Zürich", "n": [1, None]}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("not JSON", {}),
        ("[1]", {}),
        ("null", {}),
        ("[" * 100_000, {}),
    ],
)
def test_the_arguments_of_a_tool_call_become_an_object(
    arguments: object, expected: dict[str, object]
) -> None:
    function = {"name": "f", "arguments": arguments}
    call = {"id": "c", "type": "function", "function": function}
    message = read({"role": "assistant", "tool_calls": [call]})
    assert message == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{**call, "function": {"name": "f", "arguments": expected}}],
    }


def test_the_fields_of_a_tool_call_come_in_one_order_however_they_were_sent() -> None:
    call = {"extra": 1, "function": {"name": "f", "arguments": "{}"}, "type": "function", "id": "c"}
    message = read({"role": "assistant", "tool_calls": [call]})
    assert json.dumps(message["tool_calls"]) == (
        '[{"id": "c", "function": {"arguments": {}, "name": "f"}, "type": "function", "extra": 1}]'
    )


@pytest.mark.parametrize("calls", [[], None])
def test_no_tool_calls_leave_no_field(calls: object) -> None:
    assert "tool_calls" not in read({"role": "assistant", "content": "a", "tool_calls": calls})


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ("ab", "messages.0.tool_calls must be a list."),
        ([5], "assistant tool_calls entries must be objects."),
        ([{}], "chat completions only support assistant tool_calls of type 'function'."),
        (
            [{"type": "custom", "custom": {"name": "f", "input": ""}}],
            "chat completions only support assistant tool_calls of type 'function'.",
        ),
        ([{"function": {"arguments": "{}"}}], "assistant tool_calls must name their function."),
    ],
)
def test_unusable_tool_calls_are_refused(calls: object, message: str) -> None:
    with pytest.raises(InvalidChatError) as caught:
        read({"role": "assistant", "tool_calls": calls})
    assert (str(caught.value), caught.value.parameter) == (message, "tool_calls")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reasoning": "r"}, "r"),
        ({"reasoning_content": "r"}, "r"),
        ({"reasoning": "r", "reasoning_content": "old"}, "r"),
        ({"reasoning": None, "reasoning_content": "r"}, "r"),
        ({"reasoning": ""}, ""),
    ],
)
def test_reasoning_is_given_under_both_of_its_names(
    fields: dict[str, object], expected: str
) -> None:
    message = read({"role": "assistant", "content": "a", **fields})
    assert message["reasoning"] == message["reasoning_content"] == expected


def test_fields_of_other_roles_and_unknown_fields_are_dropped() -> None:
    message = {"role": "user", "content": "a"}
    others = {"tool_calls": [{}], "reasoning": "r", "tool_call_id": "c", "tools": [], "foo": 1}
    assert read({**message, **others}) == message
    answer = {"role": "assistant", "content": "a"}
    assert read({**answer, "refusal": "no", "audio": {"id": "x"}, "function_call": {}}) == answer


def test_a_name_is_kept_and_a_null_one_is_none() -> None:
    assert read({"role": "user", "content": "a", "name": "Ann"})["name"] == "Ann"
    assert "name" not in read({"role": "user", "content": "a", "name": None})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("x-anthropic-billing-header: 1\nBe brief.", [text("Be brief.")]),
        ("x-anthropic-billing-header: 1", []),
        ([text("x-anthropic-billing-header: 1"), text("Be brief.")], [text("Be brief.")]),
    ],
)
def test_a_system_message_loses_a_billing_header(content: object, expected: object) -> None:
    assert read({"role": "system", "content": content}, "openai")["content"] == expected
    assert read({"role": "user", "content": content}, "openai")["content"] != expected


@pytest.mark.parametrize(
    ("message", "words", "field"),
    [
        ("hi", "messages.1 must be an object.", ""),
        (None, "messages.1 must be an object.", ""),
        ({"content": "a"}, "messages.1.role must be a string.", ".role"),
        ({"role": 1, "content": "a"}, "messages.1.role must be a string.", ".role"),
        (
            {"role": "user", "content": None},
            "messages.1.content must be a string or a list of content parts.",
            ".content",
        ),
        (
            {"role": "tool", "content": 5},
            "messages.1.content must be a string or a list of content parts.",
            ".content",
        ),
        (
            {"role": "function", "content": None},
            "messages.1.content must be a string or a list of content parts.",
            ".content",
        ),
        (
            {"role": "user", "content": text("a")},
            "messages.1.content must be a string or a list of content parts.",
            ".content",
        ),
        ({"role": "user", "content": "a", "name": 5}, "messages.1.name must be a string.", ".name"),
        (
            {"role": "tool", "content": "a", "tool_call_id": 5},
            "messages.1.tool_call_id must be a string.",
            ".tool_call_id",
        ),
    ],
)
def test_a_malformed_message_is_refused_with_its_place(
    message: object, words: str, field: str
) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        read_messages([{"role": "user", "content": "a"}, message], "string", "tiny")
    assert str(caught.value) == words
    path = "body.messages.1.ChatCompletionDeveloperMessageParam"
    assert caught.value.parameter == path + field


def test_the_messages_of_the_request_are_left_as_they_are() -> None:
    messages = [
        {"role": "system", "content": [text("x-anthropic-billing-header: 1\na")]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
    ]
    before = json.dumps(messages)
    read_messages(messages, "string", "tiny")
    assert json.dumps(messages) == before


field_names = st.sampled_from(
    ["role", "content", "type", "text", "name", "tool_calls", "function", "arguments", "reasoning"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(field_names, inner, max_size=4),
    max_leaves=12,
)
roles = st.sampled_from(["user", "assistant", "tool", "system", "developer", "function"])
likely_messages = st.builds(
    lambda role, rest: {**rest, "role": role}, roles, st.dictionaries(field_names, json_values)
)


@given(st.lists(likely_messages | json_values, max_size=3), st.sampled_from(["string", "openai"]))
def test_any_json_is_read_or_refused_as_the_request_s_fault(
    messages: list[object], content_format: ContentFormat
) -> None:
    try:
        conversation = read_messages(messages, content_format, "tiny")
    except InvalidChatError:
        return
    assert all("role" in message and "content" in message for message in conversation)


def test_a_developer_s_message_carries_its_tools() -> None:
    tool = {"type": "function", "function": {"parameters": {}, "name": "f"}}
    message = read({"role": "developer", "content": "d", "tools": [tool]})
    assert json.dumps(message["tools"]) == (
        '[{"function": {"name": "f", "parameters": {}}, "type": "function"}]'
    )
    assert read({"role": "developer", "content": "d"})["tools"] is None


def test_a_developer_s_message_at_the_start_becomes_the_system_message() -> None:
    user: Message = {"role": "user", "content": "u"}
    developer: Message = {"role": "developer", "content": "d", "tools": None, "name": "n"}
    assert fold_developer_messages([developer, user]) == [
        {"role": "system", "content": "d", "name": "n"},
        user,
    ]


def test_system_and_developer_messages_are_merged_at_the_start() -> None:
    user: Message = {"role": "user", "content": "u"}
    conversation: list[Message] = [
        {"role": "system", "content": "s"},
        user,
        {"role": "developer", "content": [text("d1"), text("d2")]},
        {"role": "developer", "content": ""},
    ]
    assert fold_developer_messages(conversation) == [
        {"role": "system", "content": "s\n\nd1\nd2"},
        user,
    ]


def test_a_later_system_message_is_merged_into_the_first() -> None:
    conversation: list[Message] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "developer", "content": "d"},
    ]
    assert [message["content"] for message in fold_developer_messages(conversation)] == [
        "s\n\nd",
        "u",
    ]
