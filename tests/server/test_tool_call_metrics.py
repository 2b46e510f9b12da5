"""How often calls were looked for and found, as Prometheus gets it."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from umbel_engine.mock import per_child

from .generating import GENERATE, PROMPT

NAME = "vllm:tool_call_parser_invocations"
NOW = {"type": "function", "function": {"name": "get_time"}}
CALL = '<tool_call>{"name": "get_time"}</tool_call>'


async def counted(served):
    """Give what was counted, by mode and outcome, of chats; of others there must be nothing."""
    counts = {}
    text = (await served.get("/metrics")).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == f"{NAME}_total":
                labels = dict(sample.labels)
                assert labels.pop("model_name") == "smollm2"
                assert set(labels) == {"mode", "outcome", "request_type"}
                if labels["request_type"] == "chat_completions":
                    counts[labels["mode"], labels["outcome"]] = sample.value
                else:
                    assert labels["request_type"] in ("responses", "other")
                    assert sample.value == 0
    return counts


def counts(streamed=0, streamed_calls=0, whole=0, whole_calls=0):
    return {
        ("streaming", "no_tool_call"): streamed,
        ("streaming", "tool_call"): streamed_calls,
        ("non_streaming", "no_tool_call"): whole,
        ("non_streaming", "tool_call"): whole_calls,
    }


async def test_samples_are_counted_once_by_whether_they_call(serve, spell):
    texts = [CALL, CALL + CALL, "Hello world"]
    served = await serve(per_child(*map(spell, texts)), tool_parser="hermes")
    assert await counted(served) == counts()
    await served.ask(tools=[NOW], n=3)
    assert await counted(served) == counts(whole=1, whole_calls=2)
    await served.ask(tools=[NOW], n=3, parallel_tool_calls=False, stream=True)
    assert await counted(served) == counts(1, 2, 1, 2)


@pytest.mark.parametrize("stream", [False, True])
async def test_only_samples_that_the_parser_read_are_counted(serve, spell, stream):
    served = await serve(
        per_child(spell("</think>" + CALL)), tool_parser="hermes", reasoning_parser="deepseek_r1"
    )
    await served.ask(stream=stream)
    await served.ask(tools=[NOW], tool_choice="none", stream=stream)
    await served.complete(stream=stream)
    assert await counted(served) == counts()
    # A call that is enforced in the model's own form is read by its parser.
    await served.ask(tools=[NOW], tool_choice="required", stream=stream)
    assert sum((await counted(served)).values()) == 1


async def test_messages_of_generate_requests_are_those_of_chats(serve, spell):
    served = await serve(per_child(spell(CALL)), tool_parser="hermes", enable_scale_out=True)
    body = {"token_ids": PROMPT, "sampling_params": {"n": 2}}
    body["parse_context"] = {"tools": [NOW], "tool_choice": "auto"}
    for mode in ("tokens", "text", "derender"):
        await served.post(GENERATE, **body, output_mode=mode)
    assert await counted(served) == counts(whole_calls=2)


async def test_calls_enforced_as_json_are_not_read_by_the_parser(serve, spell):
    text = '[{"name": "get_time", "parameters": {}}]'
    served = await serve(per_child(spell(text)), tool_parser="pythonic")
    answer = await served.ask(tools=[NOW], tool_choice="required")
    assert answer.json()["choices"][0]["finish_reason"] == "tool_calls"
    assert await counted(served) == counts()


async def test_without_a_tool_parser_there_is_nothing_to_count(serve, spell):
    served = await serve(per_child(spell(CALL)), reasoning_parser="deepseek_r1")
    await served.ask()
    assert NAME not in (await served.get("/metrics")).text
