"""Which generate requests are refused, and in which words."""

import msgspec
import pytest

from .generating import ABORT, EOS_ID, GENERATE, PROMPT, generate

CLASS = (
    "{'type': 'is_instance_of', 'loc': 'body.sampling_params', "
    "'msg': 'must be an object of sampling parameters', 'input': "
)
CONSTRAINT = (
    "'disable_any_whitespace': False, 'disable_additional_properties': False, "
    "'whitespace_pattern': None, 'structural_tag': None, '_backend': None, "
    "'_backend_was_auto': False}"
)


def suffixed(message, name, value=None):
    return message + f" (parameter={name}" + (")" if value is None else f", value={value})"), name


@pytest.mark.parametrize(
    ("sampling", "message", "param"),
    [
        ({"n": 0}, "n must be at least 1, got 0.", None),
        (
            {"n": 20_000},
            "n must be at most 16384, got 20000. To increase this limit, set the "
            "VLLM_MAX_N_SEQUENCES environment variable.",
            None,
        ),
        ({"n": 2, "temperature": 0}, "n must be 1 when using greedy sampling, got 2.", None),
        (
            {"temperature": 9},
            *suffixed("temperature must be in [0, 2], got 9.0.", "temperature", 9.0),
        ),
        ({"top_p": 0}, *suffixed("top_p must be in (0, 1], got 0.0.", "top_p", 0.0)),
        ({"top_k": -2}, "top_k must be 0 (disable), or at least 1, got -2.", None),
        ({"min_p": 2}, "min_p must be in [0, 1], got 2.0.", None),
        ({"max_tokens": 0}, *suffixed("max_tokens must be at least 1, got 0.", "max_tokens", 0)),
        (
            {"min_tokens": 20},
            "min_tokens must be less than or equal to max_tokens=16, got 20.",
            None,
        ),
        (
            {"min_tokens": 2**31, "max_tokens": None},
            "min_tokens must be less than or equal to max_tokens=2045, got 2147483648.",
            None,
        ),
        (
            {"logprobs": -2},
            *suffixed("logprobs must be non-negative or -1, got -2.", "logprobs", -2),
        ),
        (
            {"stream_interval": 0},
            *suffixed("stream_interval must be at least 1, got 0.", "stream_interval", 0),
        ),
        ({"stop": [""]}, "stop cannot contain an empty string.", None),
        (
            {"stop": ["a"], "detokenize": False},
            "stop strings are only supported when detokenize is True. Set detokenize=True to use "
            "stop.",
            None,
        ),
        (
            {"thinking_token_budget": -2},
            *suffixed(
                "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.",
                "thinking_token_budget",
                -2,
            ),
        ),
        (
            {"structured_outputs": {}},
            "You must use one kind of structured outputs constraint but none are specified: "
            "{'json': None, 'regex': None, 'choice': None, 'grammar': None, 'json_object': None, "
            + CONSTRAINT,
            None,
        ),
        (
            {"structured_outputs": {"json": "a", "regex": "b"}},
            "You can only use one kind of structured outputs constraint but multiple are specified: "
            "{'json': 'a', 'regex': 'b', 'choice': None, 'grammar': None, 'json_object': None, "
            + CONSTRAINT,
            None,
        ),
        (
            {"extra_args": {"a": 2**64}},
            *suffixed("extra_args integers must be between -2**63 and 2**64 - 1.", "extra_args"),
        ),
        (
            {"logit_bias": {"60000": 1}},
            *suffixed(
                "token_id(s) [60000] in logit_bias contain out-of-vocab token ids. "
                "Vocabulary size: 49152",
                "logit_bias",
                [60000],
            ),
        ),
        (
            {"prompt_logprob_start": 5},
            *suffixed(
                "prompt_logprob_start requires prompt_logprob_token_ids.", "prompt_logprob_start", 5
            ),
        ),
        (
            {"prompt_logprob_token_ids": [[1]]},
            *suffixed(
                "prompt_logprob_token_ids has 1 rows, but the prompt has 2 scored rows (prompt_len "
                "- 1 - prompt_logprob_start).",
                "prompt_logprob_token_ids",
                1,
            ),
        ),
        (
            {"trace_decode_token_ids": [1]},
            "`trace_decode_token_ids` is not supported yet.",
            "trace_decode_token_ids",
        ),
    ],
)
async def test_a_sampling_parameter_out_of_range_is_refused_in_vllms_words(
    generating, sampling, message, param
):
    served = await generating()
    for stream in (False, True):
        answer = await generate(served, **sampling, stream=stream)
        assert answer.status == 400
        if not (stream and param == "prompt_logprob_token_ids"):
            assert answer.error == {
                "message": message,
                "type": "BadRequestError",
                "param": param,
                "code": 400,
            }
    assert served.engine.adds == []


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (None, "{'type': 'dict_type', 'loc': 'body.sampling_params'"),
        ([], "{'type': 'dict_type', 'loc': 'body.sampling_params'"),
        ({"n": None}, "{'type': 'int_type', 'loc': 'body.sampling_params.n'"),
        ({"temperature": None}, "{'type': 'float_type', 'loc': 'body.sampling_params.temperature'"),
        ({"seed": "x"}, "{'type': 'int_parsing', 'loc': 'body.sampling_params.seed'"),
        ({"max_tokens": "q"}, "{'type': 'int_parsing', 'loc': 'body.sampling_params.max_tokens'"),
        ({"stop": [1]}, "{'type': 'string_type', 'loc': 'body.sampling_params.stop'"),
        (
            {"stop_token_ids": 5},
            "{'type': 'list_type', 'loc': 'body.sampling_params.stop_token_ids'",
        ),
        (
            {"output_kind": 7},
            "'loc': 'body.sampling_params.output_kind', 'msg': 'must be 0, 1 or 2'",
        ),
        ({"logit_bias": 5}, "{'type': 'dict_type', 'loc': 'body.sampling_params.logit_bias'"),
        ({"logit_bias": {"x": 1}}, "'int_parsing', 'loc': 'body.sampling_params.logit_bias.x'"),
        ({"logit_bias": {"5": "x"}}, "'float_parsing', 'loc': 'body.sampling_params.logit_bias.5'"),
        ({"extra_args": 5}, "{'type': 'dict_type', 'loc': 'body.sampling_params.extra_args'"),
        (
            {"repetition_detection": {"min_count": "x"}},
            "{'type': 'int_parsing', 'loc': 'body.sampling_params.repetition_detection.min_count'",
        ),
    ],
)
async def test_a_sampling_parameter_of_a_wrong_type_is_found(generating, value, fault):
    served = await generating()
    answer = await served.post(GENERATE, token_ids=PROMPT, sampling_params=value)
    assert answer.status == 400
    error = answer.error
    assert (error["type"], error["param"]) == ("Bad Request", "body.sampling_params")
    _, first, second, *_ = error["message"].split("\n")
    assert first.strip().startswith(CLASS)
    assert first.endswith("'ctx': {'class': 'SamplingParams'}}")
    assert fault in second
    assert served.engine.adds == []


FEATURES = {
    "mm_hashes": {"image": ["a"]},
    "mm_placeholders": {"image": [{"offset": 0, "length": 1}]},
}


@pytest.mark.parametrize(
    ("field", "value", "param", "text"),
    [
        ("token_ids", [], "body.token_ids", "'too_short'"),
        ("token_ids", "x", "body.token_ids", "'list_type'"),
        ("token_ids", [1, "a", 2.5], "body.token_ids.1", "2 validation errors"),
        ("token_ids", [-1], "body.token_ids", "Value error, token_ids must not contain negative"),
        ("token_ids", [49152], None, "Token id 49152 is out of vocabulary"),
        ("token_ids", [2**70], None, "is out of vocabulary"),
        (
            "token_ids",
            [5] * 2049,
            None,
            "Input length (2049) exceeds model's maximum context length",
        ),
        ("token_ids", [5] * 2048, None, "plus the number of requested output tokens (at least 1)"),
        ("request_id", None, "body.request_id", "'string_type'"),
        ("request_id", "\ud800", "body.request_id", "'string_unicode'"),
        ("model", 5, "body.model", "'string_type'"),
        ("token_offsets", 5, "body.token_offsets", "'list_type'"),
        ("token_offsets", [[1]], "body.token_offsets.0.1", "'missing'"),
        ("token_offsets", [["a", 2]], "body.token_offsets.0.0", "'int_parsing'"),
        ("features", 5, "body.features", "'model_attributes_type'"),
        ("features", {}, "body.features.mm_hashes", "'missing'"),
        ("features", FEATURES, "features", "`features` is not supported yet."),
        ("content_parts", [5], "body.content_parts.0", "'dict_type'"),
        ("content_parts", [{}], "content_parts", "`content_parts` is not supported yet."),
        ("reasoning_ended", "x", "body.reasoning_ended", "'bool_parsing'"),
        (
            "reasoning_parser_kwargs",
            {"a": 1},
            "body.reasoning_parser_kwargs.a",
            "'extra_forbidden'",
        ),
        ("return_token_ids", "x", "body.return_token_ids", "'bool_parsing'"),
        ("output_mode", "bogus", "body.output_mode", "'tokens', 'text' or 'derender'"),
        ("output_mode", None, "body.output_mode", "'literal_error'"),
        ("parse_context", 5, "body.parse_context", "'model_attributes_type'"),
        (
            "parse_context",
            {"tool_choice": "x"},
            "body.parse_context.tool_choice",
            "'literal_error'",
        ),
        ("stream", "x", "body.stream", "'bool_parsing'"),
        ("stream_options", 5, "body.stream_options", "'model_attributes_type'"),
        (
            "cache_salt",
            "a/b",
            "cache_salt",
            "Parameter 'cache_salt' must be at most 128 characters",
        ),
        ("priority", 2**63, "body.priority", "'less_than_equal'"),
        ("kv_transfer_params", 5, "body.kv_transfer_params", "'dict_type'"),
        ("kv_transfer_params", {"a": 2**64}, "extra_args", "extra_args integers must be between"),
    ],
)
async def test_a_field_with_a_bad_value_is_refused(generating, field, value, param, text):
    served = await generating()
    answer = await served.post(
        GENERATE, **{"token_ids": PROMPT, "sampling_params": {}, field: value}
    )
    assert answer.status == 400
    assert answer.error["param"] == param
    assert text in answer.error["message"]
    assert served.engine.adds == []


async def test_a_prompt_that_is_too_long_is_refused_in_the_words_of_the_engine(generating):
    served = await generating()
    answer = await generate(served, token_ids=[5] * 2049, max_tokens=1)
    assert answer.error["message"] == (
        "The decoder prompt (length 2049) is longer than the maximum model length of 2048. Make "
        "sure that `max_model_len` is no smaller than the number of text tokens."
    )


async def test_values_out_of_range_come_before_faults_of_other_fields(generating):
    served = await generating()
    answer = await generate(served, token_ids=[-1], model=5, n=0)
    assert answer.error["message"] == "n must be at least 1, got 0."
    answer = await generate(served, model="other", n=2, temperature=0)
    assert answer.status == 400
    assert (await generate(served, model="other")).status == 404


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"output_mode": "text", "sampling_params": {"detokenize": False}},
            "output_mode='text' requires sampling_params.detokenize to be true",
        ),
        (
            {"features": FEATURES, "content_parts": [{}]},
            "content_parts and features are mutually exclusive",
        ),
    ],
)
async def test_fields_that_do_not_go_together_are_a_fault_of_the_body(generating, fields, message):
    served = await generating()
    body = {"token_ids": PROMPT, "sampling_params": {}, **fields}
    answer = await served.post(GENERATE, **body)
    assert answer.error["param"] == "body"
    assert answer.error["message"] == "1 validation error:\n  " + str(
        {
            "type": "value_error",
            "loc": "body",
            "msg": f"Value error, {message}",
            "input": f"<dict of {len(body)} items>",
            "ctx": {"error": ValueError(message)},
        }
    )


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"reasoning_ended": True}, 200),
        ({"reasoning_ended": None}, 200),
        ({"reasoning_ended": False}, 400),
        ({"reasoning_parser_kwargs": {}}, 400),
    ],
)
async def test_where_reasoning_ends_matters_to_what_is_constrained_alone(
    generating, fields, status
):
    served = await generating()
    body = {"token_ids": PROMPT, **fields}
    assert (await served.post(GENERATE, sampling_params={}, **body)).status == 200
    constrained = {"structured_outputs": {"regex": "a+"}}
    answer = await served.post(GENERATE, sampling_params=constrained, **body)
    assert answer.status == status


async def test_what_only_other_output_modes_read_is_ignored(generating):
    served = await generating()
    answer = await served.post(
        GENERATE,
        token_ids=PROMPT,
        sampling_params={"skip_clone": True, "output_kind": 2, "unknown": 1, "_eos_token_id": 7},
        token_offsets=[[0, 1]],
        features={"mm_hashes": {}, "mm_placeholders": {}},
        content_parts=[],
        parse_context={"tool_choise": "auto"},
    )
    assert answer.status == 200
    assert served.engine.adds[0].sampling_params.eos_token_id == EOS_ID


async def test_more_samples_than_the_engine_runs_at_once_are_refused(generating, monkeypatch):
    served = await generating()
    (engine,) = served.client.engines
    ready = msgspec.structs.replace(engine.ready, max_num_seqs=3)
    monkeypatch.setattr(
        type(served.client), "engines", (msgspec.structs.replace(engine, ready=ready),)
    )
    assert (await generate(served, n=3)).status == 200
    answer = await generate(served, n=4)
    assert answer.error["message"] == (
        "sampling_params.n must be at most the server's max_num_seqs (3), got 4."
    )


async def test_the_routes_are_closed_unless_they_were_opened(serve):
    served = await serve()
    for path in (GENERATE, ABORT):
        answer = await served.get(path, "POST", data=b"")
        assert (answer.status, answer.error["type"]) == (403, "PermissionDeniedError")


async def test_the_routes_ask_for_a_key(generating):
    served = await generating(api_keys=("secret",))
    for path in (GENERATE, ABORT):
        assert (await served.post(path)).status == 401
