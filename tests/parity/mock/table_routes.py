"""Rows about the other routes, and about headers."""

from .engine import end, ids_of, say
from .rows import (
    CHAT,
    COMPLETIONS,
    JSON_TYPE,
    QUESTION,
    bare,
    chat,
    complete,
    content,
    in_every_way,
    post,
)
from .servers import KEY

TWO = say("Hello", " world"), end(" Paris")
GENERATE = "/inference/v1/generate"

# A row is a line.
# fmt: off

TOKENIZER = [
    post(f"tokenize: {name}", "/tokenize", body, samples=0)
    for name, body in (
        ("a prompt", {"prompt": "Hello world"}),
        ("a prompt with strings", {"prompt": "Hello été<|im_end|>", "return_token_strs": True}),
        ("a prompt for a model", {"model": "alias", "prompt": "hi"}),
        ("an empty prompt", {"prompt": ""}),
        ("without special tokens", {"prompt": "hi", "add_special_tokens": False}),
        ("a long prompt", {"prompt": "hi" * 700}),
        ("messages", {"messages": QUESTION}),
        ("messages with strings", {"messages": QUESTION, "return_token_strs": True}),
        ("messages without a generation prompt", {"messages": QUESTION, "add_generation_prompt": False}),
        ("messages to be continued", {"messages": [*QUESTION, {"role": "assistant", "content": "Hello"}], "add_generation_prompt": False, "continue_final_message": True}),
        ("messages with arguments", {"messages": QUESTION, "chat_template_kwargs": {"tone": "x"}}),
        ("messages with a template", {"messages": QUESTION, "chat_template": "x"}),
        ("both ends", {"messages": QUESTION, "add_generation_prompt": True, "continue_final_message": True}),
        ("no messages", {"messages": []}),
        ("nothing", {}),
        ("a number", {"prompt": 5}),
        ("unknown model", {"model": "nope", "prompt": "hi"}),
    )
] + [
    post(f"detokenize: {name}", "/detokenize", body, samples=0)
    for name, body in (
        ("tokens", {"tokens": [300, 301, 2, 302]}),
        ("no tokens", {"tokens": []}),
        ("a character in pieces", {"tokens": ids_of("\U0001f389")[:3]}),
        ("tokens for a model", {"model": "parity", "tokens": [300]}),
        ("a token without a text", {"tokens": [300, 511]}),
        ("a token out of range", {"tokens": [300, 51100]}),
        ("a token below zero", {"tokens": [300, -1]}),
        ("a huge token", {"tokens": [2**63 - 1]}),
        ("a token beyond", {"tokens": [2**63]}),
        ("nothing", {}),
        ("unknown model", {"model": "nope", "tokens": [1]}),
    )
] + [
    bare("tokenizer info: closed", "/tokenizer_info"),
    bare("tokenizer info: open", "/tokenizer_info", server="tokenizer-info"),
]

MODELS = [
    bare("models", "/v1/models"),
    bare("models: one of them", "/v1/models/parity"),
    bare("models: posted", "/v1/models", "POST"),
    bare("models: head", "/v1/models", "HEAD"),
    bare("health", "/health"),
    bare("ping", "/ping"),
    bare("ping: posted", "/ping", "POST"),
    bare("version", "/version"),
    bare("load", "/load"),
    bare("nowhere", "/v1/nope"),
    bare("chat: got", CHAT, "GET"),
    bare("slash at the end", "/v1/models/"),
    bare("server info: closed", "/server_info"),
    bare("root", "/"),
]

KEYS = [
    bare("key: none", "/v1/models", server="keyed"),
    bare("key: wrong", "/v1/models", headers={"Authorization": "Bearer x"}, server="keyed"),
    bare("key: of another scheme", "/v1/models", headers={"Authorization": f"Basic {KEY}"}, server="keyed"),
    bare("key: right", "/v1/models", headers={"Authorization": f"bearer {KEY}"}, server="keyed"),
    bare("key: nowhere", "/v1/nope", server="keyed"),
    bare("key: health", "/health", server="keyed"),
    bare("key: generate", GENERATE, "POST", server="keyed"),
    post("key: tokenize", "/tokenize", {"prompt": "hi"}, server="keyed", samples=0),
    *in_every_way("with the key", *TWO, headers={"Authorization": f"Bearer {KEY}"}, server="keyed"),
    *in_every_way("without the key", *TWO, server="keyed", samples=0),
]

HEADERS = [
    *in_every_way("request id of a header", *TWO, headers={"X-Request-Id": "0123456789abcdef"}),
    *in_every_way("request id of a header, shown", *TWO, headers={"X-Request-Id": "0123456789abcdef"}, server="request-ids"),
    *in_every_way("request id made up, shown", *TWO, server="request-ids"),
    bare("request id: health", "/health", server="request-ids"),
    bare("request id: nowhere", "/nope", server="request-ids"),
    *in_every_way("request id of header and body", *TWO, headers={"X-Request-Id": "fedcba9876543210"}, request_id="0123456789abcdef"),
    *in_every_way("rank", *TWO, headers={"X-data-parallel-rank": "0"}),
    *in_every_way("a word for a rank", *TWO, headers={"X-data-parallel-rank": "first"}),
    *in_every_way("session of a header", *TWO, headers={"X-Session-ID": "a-session"}),
    *in_every_way("session of header and body", *TWO, headers={"X-Session-ID": "a-session"}, session_id="mine"),
    *in_every_way("session of header and extra arguments", *TWO, headers={"X-Session-ID": "a-session"}, vllm_xargs={"session_id": "mine"}),
    *in_every_way("priority of a header", *TWO, headers={"X-Vllm-Priority": "-3"}, priority=7),
    *in_every_way("a word for a priority", *TWO, headers={"X-Vllm-Priority": "low"}, priority=7),
    *in_every_way("trace", *TWO, headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}),
    *in_every_way("load metrics", *TWO, headers={"endpoint-load-metrics-format": "JSON"}),
    complete("content type with parameters", *TWO, headers={"Content-Type": "Application/JSON; charset=utf-8"}),
    bare("origins: preflight", CHAT, "OPTIONS", {"Origin": "http://here", "Access-Control-Request-Method": "POST"}, server="origins"),
    bare("origins: another", CHAT, "OPTIONS", {"Origin": "http://there", "Access-Control-Request-Method": "POST"}, server="origins"),
    bare("origins: a request", "/v1/models", headers={"Origin": "http://here"}, server="origins"),
    bare("origins: none allowed", CHAT, "OPTIONS", {"Origin": "http://here", "Access-Control-Request-Method": "POST"}),
]

INVOCATIONS = [
    chat("invoked", *TWO, path="/invocations"),
    complete("invoked", *TWO, path="/invocations", stream=True),
    complete("invoked with a fault", path="/invocations", n=0, samples=0),
    content("invocations: nothing", "/invocations", b"{}"),
    content("invocations: no JSON", "/invocations", b"{"),
    content("invocations: of no type", "/invocations", b"{}", {}),
]

RENDER = [
    chat("rendered", path=f"{CHAT}/render", server="scale-out", samples=0),
    chat("rendered with parameters", path=f"{CHAT}/render", server="scale-out", samples=0, seed=3, temperature=0.5, stop=["x"], max_tokens=5, logprobs=True, top_logprobs=2, return_token_offsets=True, cache_salt="s", priority=3, stream=True, model="alias"),
    chat("rendered with a fault", path=f"{CHAT}/render", server="scale-out", n=0, samples=0),
    chat("rendered, closed", path=f"{CHAT}/render", samples=0),
    complete("rendered", path=f"{COMPLETIONS}/render", server="scale-out", samples=0),
    complete("rendered prompts", path=f"{COMPLETIONS}/render", server="scale-out", prompt=["Hello", "hi hi"], n=3, seed=3, return_token_offsets=True, samples=0),
    complete("rendered with stop strings", path=f"{COMPLETIONS}/render", server="scale-out", stop=["x", "the end"], samples=0),
    chat("rendered with stop strings", path=f"{CHAT}/render", server="scale-out", stop=["x", "the end"], stream=True, samples=0),
    chat("rendered with stop strings shown", path=f"{CHAT}/render", server="scale-out", stop=["the end"], include_stop_str_in_output=True, samples=0),
    complete("rendered token ids", path=f"{COMPLETIONS}/render", server="scale-out", prompt=[300, 301], samples=0, return_token_offsets=True),
    complete("rendered with a fault", path=f"{COMPLETIONS}/render", server="scale-out", n=0, samples=0),
    complete("rendered, closed", path=f"{COMPLETIONS}/render", samples=0),
]


def generate(name, *says, params=None, n=2, samples=None, server="scale-out", headers=None, **body):
    """Make the row of a request with token ids for an answer in token ids."""
    sampling = {"n": n, "max_tokens": 3, **(params or {})}
    whole = {"token_ids": [300, 301], "sampling_params": sampling, **body}
    made = post(f"generate: {name}", GENERATE, whole, *says, server=server, headers=headers, samples=0)
    return made._replace(n=max(1, n), samples=n if samples is None else samples)


GENERATES = [
    generate("one", say("Hello", " world"), n=1),
    generate("two", *TWO),
    generate("two, streamed", *TWO, stream=True),
    generate("two, streamed with usage", *TWO, stream=True, stream_options={"include_usage": True}),
    generate("two, streamed with running usage", *TWO, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}),
    generate("two with prompt", *TWO, return_token_ids=True),
    generate("two with prompt, streamed", *TWO, return_token_ids=True, stream=True),
    generate("logprobs", *TWO, params={"logprobs": 2, "seed": 3}),
    generate("logprobs, streamed", *TWO, params={"logprobs": 2}, stream=True),
    generate("logprobs of no token", say(finish="abort"), say(" world"), params={"logprobs": 2}),
    generate("logprobs of no token, streamed", say(finish="abort"), say(" world"), params={"logprobs": 2}, stream=True),
    generate("logprobs of an end without a token, streamed", say("Hello", (), finish="abort"), say(" world"), params={"logprobs": 0}, stream=True),
    generate("prompt logprobs", *TWO, params={"prompt_logprobs": 1}),
    generate("scores", *TWO, params={"prompt_logprob_token_ids": [[300, 7]]}),
    generate("scores with an end of their own", *TWO, token_ids=[300, 301, 302], params={"prompt_logprob_token_ids": [[7, 8, -1], [9]], "prompt_logprobs": 1}),
    generate("scores from the second on", *TWO, token_ids=[300, 301, 302], params={"prompt_logprob_token_ids": [[7]], "prompt_logprob_start": 1}),
    generate("scores, streamed", stream=True, params={"prompt_logprob_token_ids": [[7]]}, samples=0),
    generate("scores for too many rows", params={"prompt_logprob_token_ids": [[7], [8]]}, samples=0),
    generate("scores for no rows", params={"prompt_logprob_token_ids": []}, samples=0),
    generate("scores for too many tokens", params={"prompt_logprob_token_ids": [[7] * 21]}, samples=0),
    generate("scores of unknown tokens", params={"prompt_logprob_token_ids": [[512, -1]]}, samples=0),
    generate("scores of words", params={"prompt_logprob_token_ids": [["7"], [7.0]]}, samples=0),
    generate("scores from before the start", params={"prompt_logprob_token_ids": [[7]], "prompt_logprob_start": -1}, samples=0),
    generate("scores from the start of nothing", params={"prompt_logprob_start": 1}, samples=0),
    generate("texts", *TWO, output_mode="text"),
    generate("texts, streamed", *TWO, output_mode="text", stream=True),
    generate("texts with logprobs", *TWO, output_mode="text", params={"logprobs": 1}),
    generate("stop string", say("Hello", " world", *["."] * 9), params={"stop": [" world"], "max_tokens": 9}),
    generate("stop token", *TWO, params={"stop_token_ids": [301]}),
    generate("no texts", *TWO, params={"detokenize": False}),
    generate("own fields", *TWO, cache_salt="s", priority=4, session_id="a", kv_transfer_params={"a": 1}, request_id="0123456789abcdef"),
    generate("alias", *TWO, model="alias"),
    generate("an error", say("Hello", (), finish="error"), say(*[" one"] * 9), params={"max_tokens": 9}),
    generate("an error, streamed", say("Hello", (), finish="error"), say(*[" one"] * 9), params={"max_tokens": 9}, stream=True),
    generate("aborted", say("Hello", (), finish="abort"), end(" Paris")),
    generate("greedy two", params={"temperature": 0}, samples=0),
    generate("zero", n=0, samples=0),
    generate("unknown model", model="nope", samples=0),
    generate("no token ids", token_ids=[], samples=0),
    generate("token id below zero", token_ids=[-1], samples=0),
    generate("token id out of range", token_ids=[512], samples=0),
    generate("token id out of range, streamed", token_ids=[512], stream=True, samples=0),
    generate("no parameters", sampling_params=None, samples=0),
    generate("too long", token_ids=[300] * 513, samples=0),
    generate("hot", params={"temperature": 5}, samples=0),
    generate("unknown output", output_mode="song", samples=0),
    generate("closed", *TWO, server="plain", samples=0),
    post("abort requests: unknown", "/inference/v1/abort_requests", {"request_ids": ["x"]}, server="scale-out", samples=0),
    post("abort requests: nothing", "/inference/v1/abort_requests", {}, server="scale-out", samples=0),
    post("abort requests: closed", "/inference/v1/abort_requests", {"request_ids": []}, samples=0),
    content("generate: no JSON", GENERATE, b"{", JSON_TYPE, server="scale-out"),
]

ROWS = [*TOKENIZER, *MODELS, *KEYS, *HEADERS, *INVOCATIONS, *RENDER, *GENERATES]
