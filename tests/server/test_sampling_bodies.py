"""What a body asks of sampling and of its prompt reaches the engine, the same for all samples."""

import pytest

from umbel_engine import RepetitionDetection

HELLO, WORLD, HI = 6004, 6005, 300

CHAT_PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"

kinds = pytest.mark.parametrize("kind", ["ask", "complete"])

DETECTION = {"max_pattern_size": 4, "min_pattern_size": 2, "min_count": 3}


@kinds
@pytest.mark.parametrize("stream", [False, True])
async def test_every_sample_gets_all_that_was_asked_for(serve, sent, token, kind, stream):
    served = await serve()
    got = await getattr(served, kind)(
        n=3,
        stream=stream,
        max_tokens=1,
        allowed_token_ids=[HI, WORLD],
        bad_words=["hi", " world"],
        repetition_detection=DETECTION,
        watermarking=False,
        routed_experts_prompt_start=1,
        vllm_xargs={"a": 1},
        cache_salt="salt",
        priority=4,
    )
    assert got.status == 200
    assert len(served.engine.adds) == 3
    params = sent(served.engine)
    assert params.allowed_token_ids == [HI, WORLD]
    # Both words have no other form with as many tokens.
    assert params.bad_words_token_ids == [[HI], [token(letter) for letter in "world"]]
    assert params.repetition_detection == RepetitionDetection(4, 2, 3)
    assert (params.watermarking, params.routed_experts_prompt_start) == (False, 1)
    assert params.extra_args == {"a": 1}
    assert {(add.cache_salt, add.priority) for add in served.engine.adds} == {("salt", 4)}


@kinds
@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        (
            {"allowed_token_ids": []},
            "allowed_token_ids is not None and empty! (parameter=allowed_token_ids, value=[])",
            "allowed_token_ids",
        ),
        (
            {"allowed_token_ids": [5, 49152]},
            "allowed_token_ids contains out-of-vocab token id! (parameter=allowed_token_ids, "
            "value=[49152])",
            "allowed_token_ids",
        ),
        (
            {"bad_words": ["ok", ""]},
            "bad_words cannot contain an empty string. Got bad_words=['ok', '']",
            None,
        ),
        (
            {"bad_words": [" "]},
            "bad_words entries must tokenize to at least one token. (parameter=bad_words, "
            "value=[' '])",
            "bad_words",
        ),
        (
            {"repetition_detection": {**DETECTION, "min_count": 1}},
            "min_count must be >= 2 to detect repetitive patterns in engine output. If you do not "
            "wish to detect repetitive patterns, set max_pattern_size to 0.",
            None,
        ),
        (
            {"thinking_token_budget": 5},
            "thinking_token_budget is set but reasoning_config is not configured. Please set "
            "--reasoning-parser and/or --reasoning-config to use thinking_token_budget.",
            None,
        ),
        (
            {"thinking_token_budget": -2},
            "`thinking_token_budget` must be a non-negative integer or -1 for unlimited. "
            "(parameter=thinking_token_budget, value=-2)",
            "thinking_token_budget",
        ),
        (
            {"truncate_prompt_tokens": 2049},
            "truncate_prompt_tokens=2049 cannot be greater than max_model_len = 2048. Please "
            "request a smaller truncation size. (parameter=truncate_prompt_tokens, value=2049)",
            "truncate_prompt_tokens",
        ),
        ({"truncate_prompt_tokens": 0}, "The decoder prompt cannot be empty", None),
    ],
)
async def test_what_cannot_be_had_is_refused_before_anything_is_sent(
    serve, kind, fields, message, param
):
    served = await serve()
    for stream in (False, True):
        refused = await getattr(served, kind)(stream=stream, n=2, **fields)
        assert (refused.status, refused.error["message"]) == (400, message)
        assert (refused.error["type"], refused.error["param"]) == ("BadRequestError", param)
    assert served.engine.adds == []


async def test_experts_may_start_at_the_end_of_the_prompt_and_not_beyond(serve):
    served = await serve()
    body = {"prompt": "Hello world", "max_tokens": 1}
    assert (await served.complete(routed_experts_prompt_start=2, **body)).status == 200
    refused = await served.complete(routed_experts_prompt_start=3, **body)
    assert (refused.status, refused.error["message"]) == (
        400,
        "routed_experts_prompt_start must be between 0 and the prompt length (2), inclusive. "
        "(parameter=routed_experts_prompt_start, value=3)",
    )


# Truncation.


@kinds
@pytest.mark.parametrize(("side", "kept"), [(None, -3), ("left", -3), ("right", 3)])
async def test_a_prompt_is_cut_for_all_samples_and_counted_as_it_was_cut(
    serve, tokenizer, kind, side, kept
):
    served = await serve()
    cut = {"truncate_prompt_tokens": 3, "truncation_side": side}
    own = {"prompt": "Hello world hi"} if kind == "complete" else {}
    got = await getattr(served, kind)(n=2, max_tokens=1, return_token_ids=True, **cut, **own)
    whole = tokenizer.encode(own.get("prompt", CHAT_PROMPT)).ids
    expected = whole[kept:] if kept < 0 else whole[:kept]
    assert [add.prompt_token_ids for add in served.engine.adds] == [expected] * 2
    answer = got.json()
    assert answer["usage"]["prompt_tokens"] == 3
    told = answer["choices"][0] if kind == "complete" else answer
    assert told["prompt_token_ids"] == expected


async def test_every_prompt_of_a_list_is_cut_by_itself(serve):
    served = await serve()
    prompts = ["Hello world", "hi", "Hello world"]
    got = await served.complete(prompt=prompts, max_tokens=1, truncate_prompt_tokens=1)
    assert [add.prompt_token_ids for add in served.engine.adds] == [[WORLD], [HI], [WORLD]]
    assert got.json()["usage"]["prompt_tokens"] == 3


@kinds
async def test_minus_one_cuts_to_what_leaves_room_for_one_token(serve, sent, kind):
    served = await serve(max_model_len=8)
    text = "x" * 60
    prompt = (
        {"messages": [{"role": "user", "content": text}]} if kind == "ask" else {"prompt": text}
    )
    got = await getattr(served, kind)(truncate_prompt_tokens=-1, max_tokens=5, **prompt)
    assert got.json()["usage"] == {
        **got.json()["usage"],
        "prompt_tokens": 7,
        "completion_tokens": 1,
    }
    assert sent(served.engine).max_tokens == 1


async def test_the_prompt_that_is_told_of_a_chat_is_whole(serve):
    served = await serve()
    got = await served.ask(truncate_prompt_tokens=3, return_prompt_text=True, max_tokens=1)
    assert got.json()["prompt_text"] == CHAT_PROMPT


# Chat templates.


async def prompt_of(served, tokenizer, **body):
    """Give the prompt that two samples were asked for with."""
    got = await served.ask(n=2, max_tokens=1, **body)
    assert got.status == 200, got.text
    first, second = [add.prompt_token_ids for add in served.engine.adds[-2:]]
    assert first == second
    return tokenizer.decode(first, skip_special_tokens=False)


SHOWS = (
    "{% for document in documents or [] %}{{ document.text }};{% endfor %}"
    "{{ reasoning_effort }},{{ enable_thinking }}"
)


async def test_documents_and_effort_reach_the_template(serve, tokenizer):
    served = await serve(trust_request_template=True)
    documents = [{"text": "x"}, {"text": "y"}]

    async def shown(**body):
        return await prompt_of(served, tokenizer, chat_template=SHOWS, **body)

    assert await shown(documents=documents) == "x;y;,"
    assert await shown(reasoning_effort="low") == "low,True"
    assert await shown(reasoning_effort="none") == "none,False"
    # What the client says of thinking itself counts, its other word for the effort does not.
    arguments = {"enable_thinking": False, "reasoning_effort": "high"}
    assert await shown(reasoning_effort="low", chat_template_kwargs=arguments) == "low,False"
    assert await shown(chat_template_kwargs=arguments) == "high,False"


async def test_a_value_that_asks_for_nothing_leaves_the_server_s(serve, tokenizer):
    served = await serve(
        trust_request_template=True, template_arguments={"enable_thinking": "ours"}
    )
    for arguments in (None, {}, {"enable_thinking": None}, {"enable_thinking": "auto"}):
        body = {"chat_template": "{{ enable_thinking }}", "chat_template_kwargs": arguments}
        assert await prompt_of(served, tokenizer, **body) == "ours"


async def test_a_template_is_taken_from_trusted_requests_only(serve, tokenizer):
    own = {"chat_template": "<|im_start|>{{ messages[0].content }}"}
    trusting = await serve(trust_request_template=True)
    assert await prompt_of(trusting, tokenizer, **own) == "<|im_start|>Hello"
    assert await prompt_of(trusting, tokenizer) == CHAT_PROMPT
    served = await serve()
    for body in (own, {"chat_template_kwargs": own}, {"chat_template": ""}):
        refused = await served.ask(**body)
        assert (refused.status, refused.error["message"]) == (
            400,
            "Chat template is passed with request, but --trust-request-chat-template is not set. "
            "Refused request with untrusted chat template.",
        )
        assert (refused.error["type"], refused.error["param"]) == ("BadRequestError", None)
    assert served.engine.adds == []


async def test_a_template_that_does_not_compile_is_the_request_s_fault(serve):
    served = await serve(trust_request_template=True)
    refused = await served.ask(chat_template="{% broken")
    assert (refused.status, refused.error["type"]) == (400, "BadRequestError")
    assert refused.error["message"] == "Encountered unknown tag 'broken'."
