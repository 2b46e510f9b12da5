"""Rows about requests that are refused, most of them before an engine hears of them."""

from umbel_engine.wire import RequestFault

from .engine import say
from .rows import CHAT, COMPLETIONS, LEFT_OUT, both, chat, complete, content, post

DEEP = {"type": "array"}
for _ in range(80):
    DEEP = {"type": "array", "items": DEEP}


UNREADABLE = say(error=RequestFault("Invalid structured outputs: no good", "validation_error"))
"""What the engine answers to a constraint that its compiler does not take."""


def refused(name, *says, **fields):
    """Make the rows of a chat and of a completion that no engine should see."""
    return both(name, *says, samples=fields.pop("samples", 0), **fields)


def in_a_stream(name, *says, **fields):
    """Make rows of what vLLM finds only when it hands the prompt on: as a whole and as a stream."""
    return [
        *refused(name, *says, **fields),
        *refused(f"{name}, streamed", *says, stream=True, **fields),
    ]


# A row is a line.
# fmt: off

N = [
    *refused("zero", n=0),
    *refused("minus one", n=-1),
    *refused("a word for n", n="two"),
    *refused("a fraction for n", n=1.5),
    *refused("a list for n", n=[2]),
    *refused("over the limit", n=16385),
    *refused("huge n", n=2**64),
    complete("null n", n=None, samples=0),
    *refused("greedy two", temperature=0),
    *refused("greedy two, streamed", temperature=0.0, stream=True),
    *refused("zero and hot", n=0, temperature=5),
    *refused("zero for an unknown model", n=0, model="nope"),
    *refused("zero and more than fits", n=0, max_tokens=99999),
    *refused("zero and an empty stop", n=0, stop=[""]),
    *refused("zero with stream options", n=0, stream_options={"include_usage": True}),
    *refused("greedy with a bad top_p", temperature=0, top_p=2),
    *refused("greedy without an output", temperature=0, max_tokens=0),
    *refused("over the limit without an output", n=16385, max_tokens=0),
]

PARAMETERS = [
    *refused("presence", presence_penalty=2.1),
    *refused("frequency", frequency_penalty=-3),
    *refused("repetition of zero", repetition_penalty=0),
    *refused("repetition without end", repetition_penalty=float("inf")),
    *refused("no temperature", temperature=float("nan")),
    *refused("temperature without end", temperature=float("inf")),
    *refused("below zero", temperature=-1),
    *refused("too hot", temperature=2.5),
    *refused("top_p of zero", top_p=0),
    *refused("top_p over one", top_p=1.1),
    *refused("top_k below minus one", top_k=-2),
    *refused("min_p", min_p=1.5),
    *refused("no output", max_tokens=0),
    *refused("less than no output", max_tokens=-4),
    chat("no output by the other name", max_completion_tokens=0, samples=0),
    *refused("less than the least", min_tokens=-1),
    *refused("least over most", min_tokens=13, max_tokens=12),
    *refused("interval of zero", stream_interval=0),
    *refused("empty stop", stop=[""]),
    *refused("an empty stop among others", stop=["a", ""]),
    *refused("five stops", stop=["a", "b", "c", "d", "e"]),
    *refused("a number for a stop", stop=5),
    *refused("empty bad word", bad_words=["a", ""]),
    *in_a_stream("bad word of spaces", bad_words=[" "]),
    *in_a_stream("too many bad words", bad_words=[chr(97 + i % 26) * (i // 26 + 1) for i in range(140)]),
    *refused("null bad words", bad_words=None),
    *refused("null least", min_tokens=None),
    *refused("bias for a word", logit_bias={"a": 1, "5": 2, "b": 0}),
    *in_a_stream("bias for no token", logit_bias={"5": 1, "512": 1, "-1": 1}),
    *in_a_stream("stop token out of range", stop_token_ids=[1, 512, -1]),
    *refused("a word for a stop token", stop_token_ids=["x"]),
    *in_a_stream("no allowed token", allowed_token_ids=[]),
    *in_a_stream("allowed token out of range", allowed_token_ids=[1, 512]),
    *refused("huge seed", seed=2**63),
    *refused("huge priority", priority=2**63),
    *refused("unequal patterns", repetition_detection={"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2}),
    *refused("too few repetitions", repetition_detection={"max_pattern_size": 2, "min_count": 1}),
    *refused("a word for repetition detection", repetition_detection="yes"),
    *refused("huge extra arguments", vllm_xargs={"a": 2**64}),
    *refused("extra arguments of a wrong kind", vllm_xargs={"a": {"b": 1}}),
    *refused("huge transfer", kv_transfer_params={"a": [{"b": -(2**63) - 1}]}),
    chat("no prompt of the transfer", kv_transfer_params={"prompt_token_ids": []}, samples=0),
    chat("a word for the prompt of the transfer", kv_transfer_params={"prompt_token_ids": "x"}, samples=0),
    chat("prompt of the transfer out of range", kv_transfer_params={"prompt_token_ids": [512]}, samples=0),
    chat("prompt of the transfer out of range, streamed", kv_transfer_params={"prompt_token_ids": [512]}, stream=True, samples=0),
    chat("prompt of the transfer too long", kv_transfer_params={"prompt_token_ids": [300] * 513}, samples=0),
    *refused("empty salt", cache_salt=""),
    *refused("salt with a slash", cache_salt="a/b"),
    *refused("salt that is too long", cache_salt="s" * 129),
    *refused("a number for a salt", cache_salt=5),
    *in_a_stream("thought without a parser", thinking_token_budget=5),
    *refused("thought below zero", thinking_token_budget=-2),
    *refused("a fraction for thought", thinking_token_budget=1.5),
    *in_a_stream("routed experts past the prompt", routed_experts_prompt_start=500),
    *refused("routed experts before the prompt", routed_experts_prompt_start=-1),
    *in_a_stream("unknown rank", headers={"X-data-parallel-rank": "5"}),
]

LOGPROBS = [
    chat("rivals without logprobs", top_logprobs=2, samples=0),
    chat("a word for rivals", logprobs=True, top_logprobs="x", samples=0),
    chat("rivals below minus one", logprobs=True, top_logprobs=-2, samples=0),
    chat("a number for logprobs", logprobs=5, samples=0),
    chat("many rivals", logprobs=True, top_logprobs=21, samples=0),
    chat("many rivals, streamed", logprobs=True, top_logprobs=21, stream=True, samples=0),
    chat("all rivals", logprobs=True, top_logprobs=-1, samples=0),
    complete("many logprobs", logprobs=21, samples=0),
    complete("many logprobs, streamed", logprobs=21, stream=True, samples=0),
    complete("logprobs below minus one", logprobs=-2, samples=0),
    complete("a fraction for logprobs", logprobs=1.5, samples=0),
    *refused("prompt logprobs in a stream", prompt_logprobs=1, stream=True),
    *refused("all prompt logprobs in a stream", prompt_logprobs=-1, stream=True),
    *refused("prompt logprobs below minus one", prompt_logprobs=-2),
    *refused("a word for prompt logprobs", prompt_logprobs="1"),
    *refused("many prompt logprobs", prompt_logprobs=21),
    *refused("all prompt logprobs", prompt_logprobs=-1),
    *refused("named tokens without logprobs", logprob_token_ids=[1]),
    chat("named tokens out of range", logprobs=True, logprob_token_ids=[1, 512], samples=0),
    chat("many named tokens", logprobs=True, logprob_token_ids=list(range(129)), samples=0),
    chat("named tokens and other rivals", logprobs=True, top_logprobs=1, logprob_token_ids=[1, 2]),
    complete("named tokens out of range", logprobs=2, logprob_token_ids=[1, 512], samples=0),
    complete("named tokens and other logprobs", logprobs=1, logprob_token_ids=[1, 2], samples=0),
    complete("many named tokens", logprobs=129, logprob_token_ids=list(range(129)), samples=0),
    complete("named tokens in an echo alone", logprobs=1, logprob_token_ids=[1], echo=True, max_tokens=0, samples=0),
    complete("named tokens, streamed", logprobs=1, logprob_token_ids=[512], stream=True, samples=0),
]

CONSTRAINTS = [
    *refused("two constraints", structured_outputs={"regex": "a", "choice": ["a"]}),
    *refused("no constraint", structured_outputs={}),
    *refused("a word for constraints", structured_outputs="x"),
    *in_a_stream("no choice", structured_outputs={"choice": []}),
    *in_a_stream("empty grammar", structured_outputs={"grammar": " "}),
    *in_a_stream("empty JSON", structured_outputs={"json": ""}),
    *in_a_stream("JSON that is none", structured_outputs={"json": "{"}),
    *in_a_stream("no object", structured_outputs={"json_object": False}),
    *in_a_stream("deep JSON", structured_outputs={"json": DEEP}),
    *in_a_stream("a regex with NUL", structured_outputs={"regex": "a\x00"}),
    *in_a_stream("a regex that is none", UNREADABLE, structured_outputs={"regex": "["}),
    *in_a_stream("a grammar that is none", UNREADABLE, structured_outputs={"grammar": "root ::= ("}),
    *refused("empty structural tag", structured_outputs={"structural_tag": ""}),
    *refused("a structural tag that is none", structured_outputs={"structural_tag": "{"}),
    *in_a_stream("a schema that is not served", structured_outputs={"json": {"type": "integer", "multipleOf": 3}}),
    *in_a_stream("a backend of its own", structured_outputs={"regex": "a", "_backend": "outlines"}),
    *refused("a schema that is missing", response_format={"type": "json_schema"}),
    *refused("an unknown format", response_format={"type": "xml"}),
    *refused("a format without a type", response_format={}),
    *refused("a structural tag that is no text", structured_outputs={"structural_tag": {}}),
    *refused("a structural tag with a word for a format", response_format={"type": "structural_tag", "format": "x"}),
    *refused("a structural tag with a list of no triggers", response_format={"type": "structural_tag", "structures": [{"begin": "a", "schema": {}, "end": "b"}], "triggers": []}),
    *refused("an unknown constraint among other faults", structured_outputs={"a": "b"}, n="two"),
    *refused("two constraints among other faults", structured_outputs={"regex": "a", "json_object": True}, n="two"),
    *refused("too few repetitions among other faults", repetition_detection={"max_pattern_size": 2, "min_count": 1}, n="two"),
    *refused("a word among constraints and other faults", structured_outputs={"regex": 5, "json_object": "x"}, n="two"),
    *refused("a structural tag without triggers", response_format={"type": "structural_tag", "structures": []}),
]

PROMPTS = [
    *refused("unknown model", model="nobody"),
    *refused("unknown model with a path", model="/models/nobody", stream=True),
    *refused("a number for a model", model=5),
    *refused("stream options without a stream", stream_options={"include_usage": True}),
    *refused("a word for stream options", stream=True, stream_options="x"),
    *refused("a word for a stream", stream="x"),
    *refused("more than fits", max_tokens=600),
    chat("more than fits by the other name", max_completion_tokens=600, samples=0),
    *refused("truncated beyond the length", truncate_prompt_tokens=1000),
    *refused("truncated below minus one", truncate_prompt_tokens=-2),
    *refused("no side", truncation_side="top"),
    complete("too long", prompt="hi" * 513, samples=0),
    complete("exactly the length", prompt="hi" * 512, samples=0),
    complete("too many characters", prompt="hi " * 9000, samples=0),
    complete("too many token ids", prompt=[300] * 513, samples=0),
    chat("too long", messages=[{"role": "user", "content": "hi" * 520}], samples=0),
    chat("too many characters", messages=[{"role": "user", "content": "hi " * 9000}], samples=0),
    complete("no prompt", prompt=LEFT_OUT, samples=0),
    complete("null prompt", prompt=None, samples=0),
    complete("empty prompt", prompt="", samples=0),
    complete("no prompts", prompt=[], samples=0),
    complete("an empty prompt among others", prompt=["a", ""], samples=0),
    complete("an empty prompt of token ids", prompt=[[]], samples=0),
    complete("an empty prompt of token ids, streamed", prompt=[[]], stream=True, samples=0),
    complete("a list of an empty prompt", prompt=[""], samples=0),
    complete("token id out of range", prompt=[300, 512], samples=0),
    complete("token id out of range, streamed", prompt=[300, 512], stream=True, samples=0),
    complete("token id below zero", prompt=[300, -1], samples=0),
    complete("mixed prompts", prompt=["a", 1], samples=0),
    complete("a thousand prompts and more", prompt=["a"] * 1025, samples=0),
    complete("a number for a prompt", prompt=5, samples=0),
    complete("suffix", suffix="x", samples=0),
    complete("empty suffix", suffix="", samples=0),
    complete("suffix in an echo", suffix="x", echo=True, samples=0),
    complete("suffix with truncation", suffix="x", truncate_prompt_tokens=2, samples=0),
    complete("empty embeddings", prompt_embeds="", samples=0),
    complete("no embeddings and an echo", prompt_embeds=[], echo=True, samples=0),
    complete("embeddings", prompt=LEFT_OUT, prompt_embeds="AAAA", samples=0),
    complete("a word for an echo", echo="x", samples=0),
    chat("null echo", echo=None, samples=0),
    chat("no messages", messages=[], samples=0),
    chat("null messages", messages=None, samples=0),
    chat("messages left out", messages=LEFT_OUT, samples=0),
    chat("a word for messages", messages="x", samples=0),
    chat("a word for a message", messages=["x"], samples=0),
    chat("a message without a role", messages=[{"content": "x"}], samples=0),
    chat("null content", messages=[{"role": "user", "content": None}], samples=0),
    chat("a number for content", messages=[{"role": "user", "content": 5}], samples=0),
    chat("an image", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x"}}]}], samples=0),
    chat("an unknown part", messages=[{"role": "user", "content": [{"type": "smell", "smell": "x"}]}], samples=0),
    *(
        chat(name, messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}, part]}], samples=0)
        for name, part in (
            ("a part without a type", {"text": "hi"}),
            ("a number for the type of a part", {"type": 5, "text": "hi"}),
            ("an unknown part behind another", {"type": "smell", "smell": "x"}),
            ("an image in embeddings", {"type": "image_embeds", "image_embeds": "AAAA"}),
            ("embeddings of a video without a type", {"video_embeds": "AAAA"}),
            ("an image of responses without a type", {"input_image": "x"}),
            ("a prompt in embeddings", {"type": "prompt_embeds", "data": "AAAA"}),
            ("a prompt in no embeddings", {"type": "prompt_embeds"}),
        )
    ),
    chat("a call of a custom tool", messages=[{"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}]}], samples=0),
    chat("both ends", continue_final_message=True, add_generation_prompt=True, samples=0),
    chat("continued by default", continue_final_message=True, samples=0),
    chat("a word for template arguments", chat_template_kwargs="x", samples=0),
    chat("a number for a document", documents=[{"title": 5}], samples=0),
    chat("media arguments", media_io_kwargs={"image": {}}, samples=0),
    chat("media processor arguments", mm_processor_kwargs={"a": 1}, samples=0),
    complete("many faults", n="x", echo="y", max_tokens="z", temperature="hot", stop=5, samples=0),
    chat("many faults", n="x", logprobs="y", max_tokens="z", temperature="hot", stop=5, messages=5, samples=0),
]

BODIES = [
    *(
        content(f"body: {name}, {kind}", path, body)
        for kind, path in (("chat", CHAT), ("completion", COMPLETIONS))
        for name, body in (
            ("empty", b""),
            ("null", b"null"),
            ("a list", b"[1]"),
            ("a word", b'"x"'),
            ("cut", b'{"n": 2,'),
            ("with more behind it", b'{"n": 2} x'),
            ("not UTF-8", b'{"prompt": "\xff"}'),
            ("no value", b'{"n": }'),
        )
    ),
    content("body: a lone surrogate", COMPLETIONS, b'{"prompt": "a\\ud800", "n": 2}'),
    content("body: of no type", COMPLETIONS, b'{"prompt": "a"}', {}),
    content("body: a text", COMPLETIONS, b'{"prompt": "a"}', {"Content-Type": "text/plain"}),
    content("body: other JSON", CHAT, b"{}", {"Content-Type": "application/vnd.api+json"}),
    content("body: a number without end", COMPLETIONS, b'{"prompt": "a", "n": 1e400}'),
    post("body: best of more than is asked for", COMPLETIONS, {"prompt": "a", "n": 2, "best_of": 1}, samples=0),
]

ROWS = [*N, *PARAMETERS, *LOGPROBS, *CONSTRAINTS, *PROMPTS, *BODIES]
