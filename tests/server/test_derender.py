"""Generate requests that ask for messages: what a chat says is said again, piece by piece."""

import msgspec
import pytest

from umbel_chat.parsers.think import DEEPSEEK_R1
from umbel_engine.mock import MockStep, per_child

from .generating import GENERATE, PROMPT

CHAT = "/v1/chat/completions"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
TIME = {"type": "function", "function": {"name": "get_time"}}
PARIS = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
NOW = '<tool_call>{"name": "get_time"}</tool_call>'
THOUGHT = "Hello world</think>\n\n"
TEMPLATE = (
    "{% for message in messages %}{{ message.content }}<|im_end|>{% endfor %}<think>"
    "{% if enable_thinking is defined and not enable_thinking %}\n\n</think>\n\n{% endif %}"
)
PARSERS = {"tool_parser": "hermes", "reasoning_parser": "deepseek_r1", "chat_template": TEMPLATE}


async def derender(served, **body):
    """Render a chat, and ask for the messages of its answers."""
    body.setdefault("messages", [{"role": "user", "content": "Hello"}])
    rendered = await served.post(f"{CHAT}/render", **body)
    assert rendered.status == 200, rendered.text
    return await served.post(GENERATE, **{**rendered.json(), "output_mode": "derender"})


def said(answer):
    """Give what the choices of an answer say, without the ids of calls, which are made up."""
    assert answer.status == 200, answer.text
    choices = []
    for choice in answer.json()["choices"]:
        for call in choice["message"].get("tool_calls", ()):
            assert call.pop("id").startswith("chatcmpl-tool-")
        names = ("index", "message", "finish_reason", "stop_reason", "logprobs")
        choices.append({name: choice[name] for name in names})
    return choices


def told(add):
    """Give what an engine is told of a child, but for its names."""
    sampling = msgspec.structs.replace(add.sampling_params, skip_reading_prefix_cache=None)
    return add.prompt_token_ids, sampling, add.reasoning_ended, add.reasoning_parser_kwargs


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": [WEATHER, TIME]},
        {"tools": [WEATHER, TIME], "tool_choice": "required"},
        {"tools": [WEATHER, TIME], "tool_choice": "none"},
        {"tools": [WEATHER, TIME], "tool_choice": WEATHER},
        {"tools": [WEATHER, TIME], "parallel_tool_calls": False},
        {"tools": [WEATHER, TIME], "include_reasoning": False},
        {"include_reasoning": False, "response_format": {"type": "json_object"}},
        {"tools": [WEATHER], "chat_template_kwargs": {"enable_thinking": False, "mine": [1]}},
        {"tools": [WEATHER], "reasoning_effort": "none", "stop": ["</tool"], "seed": 7},
        {"thinking_token_budget": 9, "response_format": {"type": "json_object"}},
    ],
)
@pytest.mark.parametrize(
    "parsers",
    [
        PARSERS,
        {"tool_parser": "hermes", "reasoning_parser": "deepseek_r1"},
        {"tool_parser": "hermes"},
    ],
    ids=["opened", "unsaid", "no-reasoning"],
)
@pytest.mark.parametrize("seed", [None, 1])
async def test_a_chat_in_two_steps_says_and_tells_the_engine_what_it_does_in_one(
    serve, spell, fields, parsers, seed
):
    texts = [THOUGHT + PARIS + " hi " + NOW, "yo" + PARIS, THOUGHT + "yo", "<tool_call>"]
    if "reasoning_parser" not in parsers:
        fields = {name: fields[name] for name in fields if name != "thinking_token_budget"}
    served = await serve(
        per_child(*(spell(text, seed) for text in texts)), enable_scale_out=True, **parsers
    )
    direct = await served.ask(**fields, n=4)
    again = await derender(served, **fields, n=4)
    assert said(again) == said(direct)
    adds = {add.request_id[0]: [] for add in served.engine.adds}
    for add in served.engine.adds:
        adds[add.request_id[0]].append(told(add))
    assert len(adds) == 4
    assert all(first == second for first, second in adds.values())


async def test_the_body_is_vllms(serve, spell):
    served = await serve(per_child(spell(THOUGHT + PARIS)), enable_scale_out=True, **PARSERS)
    answer = (await derender(served, tools=[WEATHER])).json()
    assert answer["output_mode"] == "derender"
    assert answer["usage"]["completion_tokens"] == len(answer["choices"][0]["token_ids"])
    (choice,) = answer["choices"]
    assert list(choice) == [
        *("index", "finish_reason", "stop_reason", "token_ids", "routed_experts"),
        *("sampling_mask", "weight_versions", "message", "logprobs"),
    ]
    (call,) = choice["message"].pop("tool_calls")
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": "Hello world",
    }
    assert choice["finish_reason"] == "tool_calls"


async def test_hidden_reasoning_hides_its_tokens(serve, rows):
    logprobs = rows({300: -0.5, 301: -0.25})
    step = MockStep(token_ids=(300,), logprobs=logprobs, finish="length")
    served = await serve(lambda request: [step], enable_scale_out=True, **PARSERS)
    for shows in (True, False):
        answer = await derender(served, include_reasoning=shows, logprobs=True)
        (choice,) = answer.json()["choices"]
        assert choice["message"]["reasoning"] == ("hi" if shows else None)
        assert choice["token_ids"] == ([300] if shows else None)
        assert (choice["logprobs"] is not None) == shows


@pytest.mark.parametrize(
    ("asked", "rivals"),
    [({"top_logprobs": 1}, 1), ({}, 0), ({"top_logprobs": -1}, 2), ({"logprob_token_ids": [5]}, 2)],
)
@pytest.mark.parametrize("as_token_ids", [False, True])
async def test_logprobs_are_those_of_a_chat(serve, rows, asked, rivals, as_token_ids):
    step = MockStep(token_ids=(300,), logprobs=rows({300: -0.5, 301: -0.25}), finish="length")
    served = await serve(
        lambda request: [step],
        enable_scale_out=True,
        return_tokens_as_token_ids=as_token_ids,
        max_logprobs=-1,
        **PARSERS,
    )
    direct = said(await served.ask(logprobs=True, **asked))
    assert said(await derender(served, logprobs=True, **asked)) == direct
    (entry,) = direct[0]["logprobs"]["content"]
    assert len(entry["top_logprobs"]) == rivals
    assert entry["token"].startswith("token_id:") == as_token_ids


async def test_log_probabilities_of_named_tokens_alone_are_shown(serve, rows):
    step = MockStep(token_ids=(300,), logprobs=rows({300: -0.5, 301: -0.25}), finish="length")
    served = await serve(lambda request: [step], enable_scale_out=True)
    body = {"token_ids": PROMPT, "sampling_params": {"logprob_token_ids": [301]}}
    answer = await served.post(GENERATE, **body, output_mode="derender")
    (entry,) = answer.json()["choices"][0]["logprobs"]["content"]
    assert [rival["token"] for rival in entry["top_logprobs"]] == ["hi", "yo"]


@pytest.mark.parametrize("skips", [True, False])
async def test_special_tokens_are_kept_where_a_parser_looks_for_them(serve, spell, skips):
    special = msgspec.structs.replace(DEEPSEEK_R1, start="<|im_start|>", end="<issue_closed>")
    served = await serve(
        per_child(spell("hi<issue_closed>yo")), enable_scale_out=True, reasoning_format=special
    )
    body = {"token_ids": PROMPT, "sampling_params": {"skip_special_tokens": skips}}
    answer = await served.post(GENERATE, **body, output_mode="derender", parse_context={})
    message = answer.json()["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("hi", "yo")
    text = (await served.post(GENERATE, **body, output_mode="text")).json()["choices"][0]["text"]
    assert ("<issue_closed>" in text) != skips
    direct = said(await served.ask(skip_special_tokens=skips))
    assert direct[0]["message"] == message
    assert said(await derender(served, skip_special_tokens=skips)) == direct


NOBODY = {"type": "function", "function": {"name": "nobody"}}


async def test_a_context_that_says_too_little_is_refused(serve, spell):
    served = await serve(per_child(spell("hi")), enable_scale_out=True, **PARSERS)
    body = {"token_ids": PROMPT, "sampling_params": {}}
    for context, param, words in (
        (None, None, "output_mode='derender' requires parse_context on a server with"),
        ({"tools": [TIME], "tool_choice": NOBODY}, "tool_choice", "does not match any of the"),
        ({"tool_choice": NOBODY}, "tool_choice", "does not match any of the"),
        ({"b": 1, "a": 1}, "body", "Unknown parse_context fields ['a', 'b']; the render server"),
    ):
        refused = await served.post(GENERATE, **body, output_mode="derender", parse_context=context)
        assert (refused.status, refused.error["param"]) == (400, param)
        assert words in refused.error["message"]
        for mode in ("tokens", "text"):
            answer = await served.post(GENERATE, **body, output_mode=mode, parse_context=context)
            assert answer.status == 200
    assert len(served.engine.adds) == 8


async def test_without_parsers_a_context_changes_nothing(serve, spell):
    served = await serve(per_child(spell(THOUGHT + PARIS)), enable_scale_out=True)
    body = {"token_ids": PROMPT, "sampling_params": {}, "output_mode": "derender"}
    context = {"tools": [TIME], "tool_choice": NOBODY, "include_reasoning": False}
    (choice,) = (await served.post(GENERATE, **body, parse_context=context)).json()["choices"]
    assert choice["message"]["content"] == THOUGHT + PARIS
    assert choice["finish_reason"] == "stop"
    assert choice["token_ids"]
