"""Rows about what the engine is asked for, and about stop strings and stop tokens."""

import json

from .engine import end, say, spell
from .model import END, MESSAGE_END
from .rows import LEFT_OUT, both, chat, complete, in_every_way

TWO = say("Hello", " world"), end(" Paris")
LONG = " Paris is not the city, is it"
FILLED = spell(LONG + " one" * 8)

PREFILLED = {"do_remote_prefill": True, "prompt_token_ids": [300, 302]}

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TAG = {
    "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
    "triggers": ["<f>"],
    "type": "structural_tag",
}
NEW_TAG = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": SCHEMA}}
GRAMMAR = 'root ::= "Hello" | "hi"'

# A row is a line.
# fmt: off

PARAMETERS = [
    *both("seeds", *TWO, n=3, seed=7),
    *both("negative seeds", *TWO, n=3, seed=-3),
    *both("no seed", *TWO, seed=-1),
    chat("largest seed", *TWO, seed=2**63 - 1),
    complete("smallest seed", *TWO, seed=-(2**63)),
    *both("narrowed", *TWO, top_p=0.9, top_k=40, min_p=0.05, temperature=1.3),
    *both("not narrowed", *TWO, top_p=1, top_k=-1, min_p=0),
    *both("cold", *TWO, temperature=0.004),
    *both("greedy", *TWO, n=1, temperature=0, top_p=0.5, top_k=3, min_p=0.1),
    *both("penalties", *TWO, presence_penalty=0.5, frequency_penalty=-0.5, repetition_penalty=1.25),
    *both("biases", *TWO, logit_bias={"300": 5, "301": -100, "302": 101.5, "303": -1e9}),
    *both("allowed tokens", *TWO, allowed_token_ids=[300, 301, 301]),
    *both("bad words", *TWO, bad_words=["Hello", " Paris", "not the", "é"]),
    *both("no bad words", *TWO, bad_words=[]),
    *both("at least", *TWO, min_tokens=2, max_tokens=4),
    *both("past the end", say("Hello", MESSAGE_END, END, " world"), ignore_eos=True, stream=True),
    *both("past the end, shown", say("Hello", MESSAGE_END, END, " world"), ignore_eos=True, skip_special_tokens=False),
    *both("repetition detection", say("hi", "hi", "hi", finish="repetition"), repetition_detection={"max_pattern_size": 4, "min_pattern_size": 1, "min_count": 3}),
    *both("repetition detection, streamed", say("hi", "hi", "hi", finish="repetition"), repetition_detection={"max_pattern_size": 4, "min_count": 3}, stream=True),
    *both("repetition detection off", *TWO, repetition_detection={}),
    *both("priority", *TWO, priority=-5),
    *both("salt", *TWO, cache_salt="pepper-and-salt"),
    *both("session", *TWO, session_id="a-session"),
    *both("extra arguments", *TWO, vllm_xargs={"a": 1, "b": "two", "c": [1.5, "x"]}),
    *both("session among extra arguments", *TWO, vllm_xargs={"session_id": "theirs"}),
    *in_every_way("transfer of the cache", say("Hello", " world", kv_transfer_params={"block": [1, 2]}), n=1, kv_transfer_params={"do_remote_decode": True}),
    *both("transfer of the cache of two", say("Hello", kv_transfer_params={"block": 1}), say(" world", "!", kv_transfer_params={"block": 2}), kv_transfer_params={"remote": {"host": "x"}}, vllm_xargs={"a": 1}),
    chat("prompt of the transfer", *TWO, kv_transfer_params=PREFILLED, return_token_ids=True, return_prompt_text=True),
    chat("prompt of the transfer, streamed", *TWO, kv_transfer_params=PREFILLED, return_token_ids=True, return_prompt_text=True, stream=True),
    chat("prompt of the transfer, echoed", *TWO, kv_transfer_params=PREFILLED, echo=True, return_token_ids=True),
    complete("prompt of the transfer", *TWO, kv_transfer_params=PREFILLED, return_token_ids=True),
    *both("transfer of encodings", *TWO, ec_transfer_params={"x": 1}),
    *both("watermark", *TWO, watermarking=True),
    *both("no watermark", *TWO, watermarking=False),
    *both("length penalty", *TWO, length_penalty=0.5),
    *both("unlimited thought", *TWO, thinking_token_budget=-1),
    *both("routed experts from", *TWO, routed_experts_prompt_start=1),
    *both("offsets", *TWO, return_token_offsets=True),
    *both("media by name", *TWO, mm_payload="none"),
    *both("id of the body", *TWO, request_id="0123456789abcdef"),
]

CONSTRAINTS = [
    *both("a text", *TWO, response_format={"type": "text"}),
    *both("a JSON object", *TWO, response_format={"type": "json_object"}),
    *both("a JSON schema", *TWO, response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}),
    *both("a structural tag", *TWO, response_format=TAG),
    *both("a structural tag with a format", *TWO, response_format=NEW_TAG),
    *both("structured JSON", *TWO, structured_outputs={"json": SCHEMA}),
    *both("structured JSON as a string", *TWO, structured_outputs={"json": '{"type": "integer"}'}),
    *both("structured regex", *TWO, structured_outputs={"regex": "[a-z]+"}),
    *both("structured choice", *TWO, structured_outputs={"choice": ["Hello", "hi"]}),
    *both("structured grammar", *TWO, structured_outputs={"grammar": GRAMMAR}),
    *both("structured object", *TWO, structured_outputs={"json_object": True}),
    *both("structured JSON without spaces", *TWO, structured_outputs={"json": SCHEMA, "disable_any_whitespace": True}),
    *both("structured JSON with its own spaces", *TWO, structured_outputs={"json": SCHEMA, "whitespace_pattern": "[ ]?"}),
    *both("structured JSON with nothing added", *TWO, structured_outputs={"json": SCHEMA, "disable_additional_properties": True}),
    *both("structured tag", *TWO, structured_outputs={"structural_tag": json.dumps(TAG)}),
    *both("structured regex, streamed", *TWO, structured_outputs={"regex": "[a-z]+"}, stream=True),
    *both("a format over constraints", *TWO, structured_outputs={"regex": "a"}, response_format={"type": "json_object"}),
]

STOPS = [
    *in_every_way("stop string", FILLED, spell("Hello" + " one" * 12), stop=" the", max_tokens=10),
    *in_every_way("stop strings", FILLED, spell(" London" + "." * 12), stop=["city", "ot", "..", "!!!!!"], max_tokens=14),
    *in_every_way("stop string shown", FILLED, stop=[" not"], include_stop_str_in_output=True),
    *both("stop string never said", *TWO, stop="never ever", stream=True),
    *both("stop string within a token", say(" London", *["."] * 9), stop=["nd"], stream=True),
    *both("stop string within a token, shown", say(" London", *["."] * 9), stop=["nd"], include_stop_str_in_output=True, return_token_ids=True),
    *both("stop string within a step", say(("Hello", " world", " is", " not"), *["."] * 9), stop=[" is"], return_token_ids=True, stream=True),
    *both("stop string after the least", spell("hihihihihi" + "." * 9), stop=["hi"], min_tokens=3, stream=True),
    *both("stop string at the limit", say("Hello", " world"), stop=[" world"], max_tokens=2, stream=True),
    *both("stop string held back at the end", end("Hello", " world"), stop=[" world is"], stream=True),
    *both("stop string in a broken character", spell("\U0001f389\U0001f389." + "." * 9), stop=["\U0001f389."], stream=True),
    *both("no stop strings", *TWO, stop=[]),
    *in_every_way("stop token", say("Hello", " world", " Paris"), say(" Paris", "!"), stop_token_ids=[301, 302, 301]),
    *both("stop token and string", FILLED, stop_token_ids=[301], stop=["ris"], stream=True),
    *both("the end as a stop token", end("Hello"), stop_token_ids=[MESSAGE_END], stream=True),
    *both("the end as a stop token, shown", end("Hello"), stop_token_ids=[MESSAGE_END], include_stop_str_in_output=True),
    *both("the other end", say("Hello", END), say(END), stream=True),
    *both("the other end, shown", say("Hello", END), skip_special_tokens=False, n=LEFT_OUT),
    *both("stop token with logprobs", say("Hello", " world"), stop_token_ids=[301], logprobs=1),
    *both("stop string with logprobs", say(("Hello", " world", " is"), *["."] * 9), stop=[" world"], logprobs=1, return_token_ids=True),
]

TRUNCATIONS = [
    *both("truncated", *TWO, truncate_prompt_tokens=2, return_token_ids=True),
    *both("truncated at the right", *TWO, truncate_prompt_tokens=2, truncation_side="right", return_token_ids=True),
    *both("truncated at the left", *TWO, truncate_prompt_tokens=2, truncation_side="left", return_token_ids=True, stream=True),
    *both("truncated to everything", *TWO, truncate_prompt_tokens=-1),
    *both("truncated to nothing", truncate_prompt_tokens=0),
    *both("truncated to the whole length", *TWO, truncate_prompt_tokens=512),
    *both("a side alone", *TWO, truncation_side="right"),
    complete("echo of a truncated prompt", *TWO, truncate_prompt_tokens=1, echo=True, return_token_ids=True),
    complete("truncated token ids", *TWO, prompt=[300, 301, 302], truncate_prompt_tokens=2, return_token_ids=True),
    complete("truncated prompts", *TWO, prompt=["Hello world is", "hi"], truncate_prompt_tokens=2, return_token_ids=True),
    complete("a long prompt truncated", *TWO, prompt="hi" * 600, truncate_prompt_tokens=-1),
    complete("a long prompt truncated to the whole", *TWO, prompt="hi" * 600, truncate_prompt_tokens=512),
    complete("a limit with little room", *TWO, prompt="hi" * 510, max_tokens=5),
]

ROWS = [*PARAMETERS, *CONSTRAINTS, *STOPS, *TRUNCATIONS]
