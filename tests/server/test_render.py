"""Rendering: what a generate request carries, and that it leads to the same tokens."""

import json

import msgspec
import pytest

from umbel_engine.mock import sampled

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GENERATE = "/inference/v1/generate"
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def rendering(serve):
    """Start a server that is opened for rendering and for generate requests."""

    async def rendering(script=None, **options):
        return await serve(script or sampled(), enable_scale_out=True, **options)

    return rendering


async def render(served, path, **body):
    answer = await served.post(f"{path}/render", **body)
    assert answer.status == 200, answer.text
    return answer.json()


async def test_a_rendered_chat_is_vllms(rendering, tokenizer):
    served = await rendering()
    answer = await served.post(
        f"{CHAT}/render",
        messages=MESSAGES,
        request_id="x",
        n=3,
        seed=7,
        max_tokens=50,
        min_tokens=2,
        logprobs=True,
        top_logprobs=2,
        stop="x",
        stop_token_ids=[4, 4],
        bad_words=["hi"],
        logit_bias={"5": 1},
        allowed_token_ids=[1],
        watermarking=True,
        response_format={"type": "json_object"},
        repetition_detection={"max_pattern_size": 3, "min_count": 2},
        kv_transfer_params={"a": 1},
        vllm_xargs={"b": 2},
        chat_template_kwargs={"mine": 1},
        reasoning_effort="low",
        stream=True,
        stream_interval=3,
        stream_options={"include_usage": True},
    )
    prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    token_ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    assert answer.text == (
        f'{{"request_id":"chatcmpl-x","token_ids":{json.dumps(token_ids, separators=(",", ":"))},'
        '"token_offsets":null,"features":null,"content_parts":null,"sampling_params":{"n":3,'
        '"presence_penalty":0.0,"frequency_penalty":0.0,"repetition_penalty":1.0,'
        '"temperature":1.0,"watermarking":true,"top_p":1.0,"min_p":0.0,"seed":7,"stop":["x"],'
        '"stop_token_ids":[4],"max_tokens":50,"min_tokens":2,"logprobs":2,"output_kind":1,'
        '"stream_interval":3,"skip_clone":true,"structured_outputs":{"json":null,"regex":null,'
        '"choice":null,"grammar":null,"json_object":true,"disable_any_whitespace":false,'
        '"disable_additional_properties":false,"whitespace_pattern":null,"structural_tag":null,'
        '"_backend":null,"_backend_was_auto":false},"logit_bias":{"5":1.0},'
        '"allowed_token_ids":[1],"extra_args":{"b":2},"bad_words":["hi"],'
        '"skip_reading_prefix_cache":false,"repetition_detection":{"max_pattern_size":3,'
        '"min_pattern_size":0,"min_count":2}},"model":null,"reasoning_ended":null,'
        '"reasoning_parser_kwargs":null,"return_token_ids":null,"output_mode":"tokens",'
        '"parse_context":{"tools":null,"tool_choice":"none","parallel_tool_calls":true,'
        '"include_reasoning":true,"chat_template_kwargs":{"mine":1,"add_generation_prompt":true,'
        '"continue_final_message":false,"reasoning_effort":"low","enable_thinking":true},'
        '"history_tool_call_cnt":0},"stream":true,"stream_options":{"include_usage":true,'
        '"continuous_usage_stats":false},"cache_salt":null,"priority":0,'
        '"kv_transfer_params":{"a":1},"ec_transfer_params":null}'
    )


async def test_a_rendered_greedy_completion_is_vllms_but_for_its_limit(rendering):
    served = await rendering()
    answer = await served.post(
        f"{COMPLETIONS}/render", prompt="hi", request_id="x", temperature=0, model="smollm2"
    )
    assert answer.text == (
        '[{"request_id":"cmpl-x","token_ids":[300],"token_offsets":null,"features":null,'
        '"content_parts":null,"sampling_params":{"presence_penalty":0.0,"frequency_penalty":0.0,'
        '"repetition_penalty":1.0,"temperature":0.0,"stop":[],"stop_token_ids":[],'
        '"max_tokens":16,"output_kind":2,"skip_clone":true,"bad_words":[],'
        '"skip_reading_prefix_cache":false},"model":"smollm2","reasoning_ended":null,'
        '"reasoning_parser_kwargs":null,"return_token_ids":null,"output_mode":"tokens",'
        '"parse_context":null,"stream":false,"stream_options":null,"cache_salt":null,"priority":0,'
        '"kv_transfer_params":null,"ec_transfer_params":null}]'
    )


async def test_the_rest_of_the_sampling_fields_are_rendered(rendering):
    served = await rendering()
    fields = {
        "prompt_logprobs": 1,
        "logprob_token_ids": [5],
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "include_stop_str_in_output": True,
        "ignore_eos": True,
        "top_k": 4,
        "routed_experts_prompt_start": 1,
    }
    (request,) = await render(served, COMPLETIONS, prompt="hi", logprobs=1, **fields)
    sampling = request["sampling_params"]
    assert {name: sampling[name] for name in fields} == fields
    assert "logprobs" not in sampling
    assert sampling["skip_reading_prefix_cache"] is True


async def test_offsets_of_tokens_are_rendered_where_they_are_asked_for(rendering):
    served = await rendering()
    (request,) = await render(served, COMPLETIONS, prompt="hi world", return_token_offsets=True)
    assert request["token_offsets"] == [[0, 2], [2, 8]]
    assert len(request["token_ids"]) == 2
    assert (await served.post(GENERATE, **request)).status == 200


async def test_hidden_reasoning_has_ended_and_tool_calls_of_the_past_are_counted(rendering):
    served = await rendering()
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [*MESSAGES, {"role": "assistant", "content": "yo", "tool_calls": [call, call]}]
    request = await render(served, CHAT, messages=messages, include_reasoning=False)
    assert request["reasoning_ended"] is True
    assert request["parse_context"]["include_reasoning"] is False
    assert request["parse_context"]["history_tool_call_cnt"] == 2


async def test_transfer_parameters_are_fields_and_no_extra_arguments(rendering):
    served = await rendering()
    transfer = {"kv_transfer_params": {"a": 1}, "ec_transfer_params": {"b": 2}}
    (request,) = await render(served, COMPLETIONS, prompt="hi", **transfer)
    assert {name: request[name] for name in transfer} == transfer
    assert "extra_args" not in request["sampling_params"]
    assert (await served.post(GENERATE, **request)).status == 200
    assert served.engine.adds[0].sampling_params.extra_args == transfer


SAMPLING = {
    "seed": 7,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "logit_bias": {"300": 2},
    "stop_token_ids": [5],
    "bad_words": ["yo"],
    "min_tokens": 1,
    "structured_outputs": {"regex": "a+"},
    "repetition_detection": {"max_pattern_size": 3, "min_count": 2},
    "vllm_xargs": {"mine": 1},
    "cache_salt": "salt",
    "priority": 3,
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_generating_from_what_was_rendered_is_answering_directly(rendering, path, stream):
    served = await rendering(override={"repetition_penalty": 1.5})
    prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "Hello"}
    body = {**prompt, **SAMPLING, "n": 3, "max_tokens": 16, "stream": stream}
    direct = await served.post(path, **body, return_token_ids=True)
    rendered = await render(served, path, **body)
    request = rendered if path == CHAT else rendered[0]
    answer = await served.post(GENERATE, **request)
    assert answer.status == 200
    assert token_ids_of(answer, stream) == token_ids_of(direct, stream)

    adds = {add.request_id[0]: [] for add in served.engine.adds}
    for add in served.engine.adds:
        adds[add.request_id[0]].append(add)
    assert len(adds) == 3
    for first, second in adds.values():
        assert first.prompt_token_ids == second.prompt_token_ids
        assert first.sampling_params == with_default(second.sampling_params)
        assert (first.cache_salt, first.priority) == (second.cache_salt, second.priority)


def with_default(params):
    """Take back that a generate request says what the engine does by itself."""
    assert params.skip_reading_prefix_cache is False
    return msgspec.structs.replace(params, skip_reading_prefix_cache=None)


def token_ids_of(answer, stream):
    token_ids = {}
    for event in answer.events if stream else [answer.json()]:
        for choice in event["choices"]:
            token_ids.setdefault(choice["index"], []).extend(choice.get("token_ids") or [])
    return token_ids


async def test_several_prompts_are_rendered_to_one_request_each(rendering):
    served = await rendering()
    body = {"prompt": ["hi", "yo"], "n": 2, "seed": 7, "max_tokens": 4}
    direct = await served.complete(**body, return_token_ids=True)
    answers = []
    for request in await render(served, COMPLETIONS, **body, request_id="x"):
        answer = await served.post(GENERATE, **request)
        answers.append(answer.json())
    assert [answer["request_id"] for answer in answers] == [
        "generate-tokens-cmpl-x-0",
        "generate-tokens-cmpl-x-1",
    ]
    generated = [choice["token_ids"] for answer in answers for choice in answer["choices"]]
    assert generated == [choice["token_ids"] for choice in direct.json()["choices"]]


async def test_best_of_is_no_part_of_what_is_rendered(rendering):
    served = await rendering()
    refused = await served.post(f"{COMPLETIONS}/render", prompt="hi", best_of=3)
    assert (refused.status, refused.error["param"]) == (400, "best_of")
    assert await render(served, COMPLETIONS, prompt="hi", n=2, best_of=2)
