"""Chat templates: loading, rendering, continuing the final message."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from umbel_chat.errors import ChatTemplateError, InvalidChatError
from umbel_chat.messages import Message, read_messages
from umbel_chat.template import END_MARK, ChatTemplate

CHATML = """\
{%- if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}
{%- endif %}
{% for message in messages %}
<|im_start|>{{ message['role'] + '\\n' + message['content'] + '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""

LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}
{{- '<|start|>system<|end|>Today: ' + date_string + '<|eot|>' }}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {%- set function = message.tool_calls[0].function %}
        {{- '<|start|>' + message.role + '<|end|>' }}
        {{- {'name': function.name, 'parameters': function.arguments} | tojson }}{{ '<|eot|>' }}
    {%- elif message.role == 'tool' %}
        {{- '<|start|>ipython<|end|>' + (message.content | tojson) + '<|eot|>' }}
    {%- else %}
        {{- '<|start|>' + message.role + '<|end|>' + message.content | trim + '<|eot|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant<|end|>' }}{% endif %}
"""

MISTRAL = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate: user, assistant, user, assistant, ...') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if tools is not none and loop.last %}[TOOLS] {{ tools | tojson }}[/TOOLS]{% endif %}
        {{- '[INST] ' }}
        {%- for part in message['content'] %}{{ part['text'] }}{% endfor %}
        {{- ' [/INST]' }}
    {%- else %}
        {%- for part in message['content'] %}{{ part['text'] }}{% endfor %}
        {{- eos_token }}
    {%- endif %}
{%- endfor %}
"""

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOL = {"type": "function", "function": {"name": "f", "description": "<é>", "parameters": {}}}

USER: Message = {"role": "user", "content": "Hi"}
ANSWER: Message = {"role": "assistant", "content": "The answer is "}


def render(source: str, messages: list[object], **options: object) -> str:
    template = ChatTemplate(source, TOKENS, now=lambda: datetime(2024, 7, 26))
    conversation = read_messages(messages, template.content_format, "tiny")
    return template.render(conversation, **options)  # type: ignore[arg-type]


def show(expression: str, **options: object) -> str:
    return render(expression, [USER], **options)


# Families of templates


def test_a_chatml_conversation() -> None:
    system = {"role": "system", "content": " Be brief. "}
    assert render(CHATML, [system, USER]) == (
        "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert render(CHATML, [USER], add_generation_prompt=False) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    )


def test_a_llama_conversation_with_a_tool_call() -> None:
    call = {"id": "c", "function": {"name": "weather", "arguments": '{"city": "<Zürich>"}'}}
    messages: list[object] = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": '"22°"'},
    ]
    assert render(LLAMA3, messages) == (
        "<s><|start|>system<|end|>Today: 26 Jul 2024<|eot|><|start|>user<|end|>Hi<|eot|>"
        '<|start|>assistant<|end|>{"name": "weather", "parameters": {"city": "<Zürich>"}}<|eot|>'
        '<|start|>ipython<|end|>"\\"22°\\""<|eot|><|start|>assistant<|end|>'
    )


def test_a_mistral_conversation_in_parts_with_tools() -> None:
    assert render(MISTRAL, [USER, ANSWER, USER], tools=[TOOL]) == (
        "<s>[INST] Hi [/INST]The answer is </s>"
        '[TOOLS] [{"type": "function", "function": {"name": "f", "description": "<é>", '
        '"parameters": {}}}][/TOOLS][INST] Hi [/INST]'
    )


def test_a_conversation_that_a_template_does_not_allow() -> None:
    with pytest.raises(InvalidChatError, match=r"^Roles must alternate: user, assistant, user"):
        render(MISTRAL, [USER, USER])


# Continuing the final message


def test_a_continued_message_ends_where_its_content_ends() -> None:
    rendered = render(
        CHATML, [USER, ANSWER], add_generation_prompt=False, continue_final_message=True
    )
    assert rendered.endswith("<|im_start|>assistant\nThe answer is ")


def test_a_continued_message_that_the_template_trims_ends_without_space() -> None:
    rendered = render(
        LLAMA3, [USER, ANSWER], add_generation_prompt=False, continue_final_message=True
    )
    assert rendered.endswith("<|start|>assistant<|end|>The answer is")


def test_a_continued_message_ends_with_its_last_text_part() -> None:
    answer = {"role": "assistant", "content": ["One ", "Two "]}
    rendered = render(
        MISTRAL, [USER, answer], add_generation_prompt=False, continue_final_message=True
    )
    assert rendered == "<s>[INST] Hi [/INST]One Two "


def test_other_parts_and_fields_stay_while_a_text_part_is_continued() -> None:
    parts = [{"type": "text", "text": "One ", "tone": "soft"}, {"tool_reference": 1, "name": "f"}]
    source = (
        "{% for message in messages %}{{ message.content | length }}"
        "{% for part in message.content %}<{{ part.tone }}>{{ part.text }}{{ part.name }}"
        "{% endfor %}{% endfor %}"
    )
    messages: list[object] = [{"role": "assistant", "content": parts}]
    assert render(source, messages) == "2<soft>One <>f"
    assert (
        render(source, messages, add_generation_prompt=False, continue_final_message=True)
        == "2<soft>One "
    )


def test_text_that_looks_like_the_mark_of_the_end_does_not_end_the_prompt() -> None:
    user = {"role": "user", "content": f"What is {END_MARK}?"}
    rendered = render(
        CHATML, [user, ANSWER], add_generation_prompt=False, continue_final_message=True
    )
    assert f"What is {END_MARK}?" in rendered
    assert rendered.endswith("The answer is ")


def test_an_earlier_message_of_the_same_text_is_not_where_the_prompt_ends() -> None:
    conversation: list[object] = [ANSWER, USER, ANSWER]
    rendered = render(
        CHATML, conversation, add_generation_prompt=False, continue_final_message=True
    )
    assert rendered.count("The answer is ") == 2
    assert rendered.endswith("The answer is ")


@pytest.mark.parametrize(
    ("source", "answer", "message"),
    [
        (
            "{{ messages[-1].content | upper }}",
            "a",
            "continue_final_message is set but the final message does not appear in the chat after "
            "applying the chat template! This can happen if the chat template deletes portions of "
            "the final message. Please verify the chat template and final message in your chat to "
            "ensure they are compatible.Final message to continue: a\nRendered chat:\nA ",
        ),
        (
            "{{ messages[0].role }}",
            "a",
            'continue_final_message is set to "content" but this is not an accepted field in the '
            "chat_template",
        ),
        (
            "{% for m in messages %}{% for part in m.content %}{{ part }}{% endfor %}{% endfor %}",
            [],
            "continue_final_message is set but we could not find any text to continue in the final "
            "message!",
        ),
    ],
)
def test_a_message_that_cannot_be_continued(source: str, answer: object, message: str) -> None:
    messages: list[object] = [{"role": "assistant", "content": answer}]
    with pytest.raises(InvalidChatError) as caught:
        render(source, messages, add_generation_prompt=False, continue_final_message=True)
    assert str(caught.value) == message


def test_a_final_message_without_content_cannot_be_continued() -> None:
    with pytest.raises(InvalidChatError, match=r'the final message has no "content" to continue!$'):
        ChatTemplate("{{ messages[0].content }}").render(
            [{"role": "assistant"}], add_generation_prompt=False, continue_final_message=True
        )


def test_a_message_cannot_be_continued_and_another_begun() -> None:
    with pytest.raises(InvalidChatError) as caught:
        render(CHATML, [USER, ANSWER], continue_final_message=True)
    assert str(caught.value) == (
        "continue_final_message and add_generation_prompt are not compatible. Use "
        "continue_final_message when you want the model to continue the final message, and "
        "add_generation_prompt when you want to add a header that will prompt it to start a new "
        "assistant message instead."
    )


# What a template is given


def test_an_empty_conversation_is_refused() -> None:
    with pytest.raises(InvalidChatError) as caught:
        render(CHATML, [])
    assert str(caught.value) == (
        "Cannot apply chat template to an empty conversation. Provide at least one message."
    )


def test_without_a_template_every_conversation_is_refused() -> None:
    with pytest.raises(InvalidChatError) as caught:
        ChatTemplate(None).render([USER])
    assert str(caught.value) == (
        "As of transformers v4.44, default chat template is no longer allowed, so you must provide "
        "a chat template if the tokenizer does not define one."
    )


def test_tools_and_documents_are_none_when_there_are_none() -> None:
    assert show("{{ tools is none }} {{ documents is none }}") == "True True"


def test_template_kwargs_reach_the_template_unless_null_or_auto() -> None:
    source = "{{ a }} {{ b is defined }} {{ c is defined }} {{ d }}"
    given = {"a": False, "b": None, "c": "auto", "d": [1], "unused": 1}
    assert show(source, template_kwargs=given) == "False False False [1]"


def test_template_kwargs_replace_special_tokens() -> None:
    assert show("{{ bos_token }}{{ eos_token }}", template_kwargs={"bos_token": "!"}) == "!</s>"


def test_the_request_s_own_fields_win_over_template_kwargs_except_for_tools() -> None:
    source = "{{ add_generation_prompt }} {{ documents[0].text }} {{ tools[0].type }}"
    given = {
        "add_generation_prompt": False,
        "continue_final_message": True,
        "tokenize": True,
        "documents": [{"text": "kwarg"}],
        "tools": [{"type": "kwarg"}],
    }
    fields = {"documents": [{"text": "field"}], "tools": [{"type": "field"}]}
    assert show(source, template_kwargs=given) == "True kwarg kwarg"
    assert show(source, template_kwargs=given, **fields) == "True field kwarg"


def test_a_template_in_template_kwargs_is_refused_as_untrusted() -> None:
    with pytest.raises(InvalidChatError, match="Refused request with untrusted chat template"):
        show("{{ chat_template }}", template_kwargs={"chat_template": "{{ 1 }}"})
    assert show("{{ chat_template }}", template_kwargs={"chat_template": None}) == ""


@pytest.mark.parametrize("name", ["messages", "conversation"])
def test_template_kwargs_cannot_replace_the_messages(name: str) -> None:
    with pytest.raises(InvalidChatError, match=f"must not contain '{name}'"):
        show("{{ messages[0].content }}", template_kwargs={name: [USER]})


@pytest.mark.parametrize("name", ["tools", "documents"])
@pytest.mark.parametrize("value", ["a", 5, {"a": 1}, [5]])
def test_tools_and_documents_must_be_lists_of_objects(name: str, value: object) -> None:
    with pytest.raises(InvalidChatError, match=f"^{name} must be a list of objects") as caught:
        show("{{ tools }}{{ documents }}", template_kwargs={name: value})
    assert caught.value.parameter == name


def test_developer_messages_are_folded_for_templates_that_do_not_know_them() -> None:
    messages: list[object] = [USER, {"role": "developer", "content": "Be brief."}]
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}"
    assert render(source, messages) == "system: Be brief.;user: Hi;"
    knows = "{% if messages[0].role == 'developer' %}{% endif %}"
    assert render(source + knows, messages) == "user: Hi;developer: Be brief.;"


# The environment of templates


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("{{ x | tojson }}", '{"b": "<é>&\'", "a": [1, 2.5, null, true]}'),
        ("{{ x | tojson(ensure_ascii=True) }}", '{"b": "<\\u00e9>&\'", "a": [1, 2.5, null, true]}'),
        ("{{ x | tojson(sort_keys=true) }}", '{"a": [1, 2.5, null, true], "b": "<é>&\'"}'),
        ("{{ x | tojson(separators=(',', ':')) }}", '{"b":"<é>&\'","a":[1,2.5,null,true]}'),
        ("{{ x.b | tojson(indent=2) }}", '"<é>&\'"'),
        ("{{ {'a': [1]} | tojson(indent=1) }}", '{\n "a": [\n  1\n ]\n}'),
    ],
)
def test_tojson_writes_json_as_transformers_does(expression: str, expected: str) -> None:
    value = {"b": "<é>&'", "a": [1, 2.5, None, True]}
    assert show(expression, template_kwargs={"x": value}) == expected


def test_strftime_now_prints_the_local_time() -> None:
    assert show("{{ strftime_now('%Y-%m-%d') }}") == "2024-07-26"
    assert ChatTemplate("{{ strftime_now('%Y') }}").render([USER]) == str(datetime.now().year)


def test_loops_can_be_broken_and_continued() -> None:
    source = (
        "{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}"
        "{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}"
    )
    assert show(source) == "13"


def test_a_generation_block_renders_its_body_in_a_scope_of_its_own() -> None:
    source = (
        "{% set x = 1 %}"
        "{% generation %}{% set x = 2 %}{{ messages[0].content }}{{ x }}{% endgeneration %}"
        "{{ x }}"
    )
    assert show(source) == "Hi21"


def test_blocks_leave_no_white_space_of_their_own() -> None:
    assert show("a\n  {% if true %}\n  b\n  {% endif %}\nc\n") == "a\n  b\nc"


def test_rendering_leaves_the_conversation_as_it_is() -> None:
    conversation = [dict(USER), {"role": "assistant", "content": [{"type": "text", "text": "a"}]}]
    before = json.dumps(conversation)
    template = ChatTemplate(MISTRAL, TOKENS)
    for continues in (False, True):
        template.render(
            read_messages(conversation, "openai", "tiny"),
            add_generation_prompt=False,
            continue_final_message=continues,
        )
    assert json.dumps(conversation) == before


def test_one_template_renders_on_several_threads() -> None:
    template = ChatTemplate(CHATML)
    conversations: list[list[Message]] = [
        [{"role": "user", "content": f"message {i}"}] for i in range(64)
    ]
    with ThreadPoolExecutor(4) as pool:
        rendered = list(pool.map(template.render, conversations))
    assert rendered == [template.render(conversation) for conversation in conversations]


@pytest.mark.parametrize("source", ["{% for", "{{ x | no_such_filter }}", "{% nonsense %}"])
def test_a_source_that_is_no_template_is_an_error_before_any_request(source: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"^the chat template is not valid: "):
        ChatTemplate(source)
