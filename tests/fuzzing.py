"""Requests of every kind, valid and broken, for the fuzz tests: what a client may send, and how.

Small numbers and the ends of a range are drawn more often than others: what is to be rare is tied
to one in the middle.
"""

import asyncio
import json
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest
from umbel_server.requests.generate import GenerateRequest
from umbel_server.requests.generate_sampling import GenerateSampling

VOCABULARY_SIZE = 49152
MAX_MODEL_LEN = 2048
MAX_N = 6
MODEL = "a-model"
TIMEOUT = 30
"""Seconds after which an answer that does not come is given up."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GENERATE = "/inference/v1/generate"
JSON_TYPE = b"Content-Type: application/json"

THOROUGH = settings.get_current_profile_name() == "thorough"


def bounded(examples):
    """Give the settings of a fuzz test: so many examples, the same ones every time.

    With the profile "thorough" they are many, and new each time.
    """
    bounds = {} if THOROUGH else {"max_examples": examples, "derandomize": True, "database": None}
    return settings(
        settings.get_profile(settings.get_current_profile_name()),
        deadline=None,
        suppress_health_check=[
            HealthCheck.data_too_large,
            HealthCheck.function_scoped_fixture,
            HealthCheck.too_slow,
        ],
        **bounds,
    )


# How it is sent.


class Request(NamedTuple):
    """A request as it goes out; `head` has the header lines besides the length."""

    path: str
    head: list[bytes]
    body: bytes

    def __repr__(self):
        return f"{self.path} {self.head} {self.body[:5000]} ({len(self.body)} bytes)"


class Response(NamedTuple):
    """What came back; of a stream, `body` has the framing of its chunks too."""

    status: int
    body: bytes


async def post(port, request):
    """Send a request, bytes as they are, on a connection of its own."""
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(as_sent(request))
            answer, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
            await writer.wait_closed()
    return Response(int(answer.split()[1]), body)


def as_sent(request):
    """Give the bytes of a request."""
    head = [
        b"POST %b HTTP/1.1" % request.path.encode(),
        b"Host: localhost",
        b"Connection: close",
        b"Content-Length: %d" % len(request.body),
        *request.head,
    ]
    return b"\r\n".join(head) + b"\r\n\r\n" + request.body


# Values.

EDGES = [2**bits + more for bits in (7, 15, 16, 31, 32, 53, 63, 64) for more in (-1, 0, 1)]
WHOLE = [0, 1, -1, 2, -2, 3, 20, 21, 2047, 2048, 49151, 49152, 10**25]
WHOLE += [sign * edge for edge in EDGES for sign in (1, -1)]
SMALL = [0.0, -0.0, 5e-324, 1e-40, 1e-5, 0.009, 0.01, 0.5, 1.0, 1.0000001, 1.5, 2.0, 2.0000001]
LARGE = [1e38, 1e39, 1.7976931348623157e308, float("nan"), float("inf")]
FRACTIONS = [sign * value for value in SMALL + LARGE for sign in (1, -1)]
INTEGERS = st.sampled_from(WHOLE)
FLOATS = st.sampled_from(FRACTIONS) | st.floats()
# Surrogates included: JSON can carry lone ones.
ODD_TEXTS = st.sampled_from(
    ["", "a", "1", "2.0", "true", "NaN", "\0", "\ud800", "a\udfffb", "\r\n", "@/"]
)
LONG_TEXTS = st.sampled_from(["a" * 129, "a" * 1025])
SPECIAL_TEXTS = st.sampled_from(
    ["<|im_end|>", "<|im_start|>user\n", "\u202e\ufeff", "\U0001f9d1\u200d"]
)
TEXTS = st.text(max_size=12)
WORDS = TEXTS.filter(bool)
ANY_TEXTS = ODD_TEXTS | LONG_TEXTS | SPECIAL_TEXTS | st.text(st.characters(), max_size=12)
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, FLOATS, ANY_TEXTS)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXTS, inner, max_size=3),
    max_leaves=6,
)
TOKEN_IDS = st.integers(0, VOCABULARY_SIZE - 1)
SOME_TOKEN_IDS = st.lists(TOKEN_IDS, min_size=1, max_size=5)
MANY_TOKEN_IDS = st.sampled_from([127, 128, 129, 1024, 1025, 2047, 2048, 2049]).map(
    lambda count: list(range(100, 100 + count))
)
TOKEN_ID_LISTS = st.one_of(SOME_TOKEN_IDS, SOME_TOKEN_IDS, SOME_TOKEN_IDS, MANY_TOKEN_IDS)
SOME_BIASES = st.dictionaries(TOKEN_IDS.map(str), FLOATS | INTEGERS, max_size=4)
MANY_BIASES = st.sampled_from([300, 1024, 1025]).map(
    lambda count: {str(token_id): 1.0 for token_id in range(count)}
)
DEPTHS = st.sampled_from([15, 16, 63, 64, 65, 500])


@st.composite
def mostly(draw, usual, edges=ANYTHING):
    """Draw what a field is for; sometimes a value at an edge of that, and now and then anything."""
    return draw({13: edges, 17: edges, 19: ANYTHING}.get(draw(st.integers(0, 31)), usual))


@st.composite
def nested(draw):
    """Draw an object that is as deep as some limits are, and a little deeper."""
    wrap = draw(st.sampled_from([lambda inner: [inner], lambda inner: {"a": inner}]))
    value = draw(SCALARS)
    for _ in range(draw(DEPTHS)):
        value = wrap(value)
    return {"deep": value}


def objects(values=ANYTHING):
    return mostly(st.dictionaries(TEXTS, values, max_size=2), st.one_of(ANYTHING, nested()))


BOOLEANS = mostly(st.booleans(), SCALARS)
NAMES = mostly(TEXTS, ANY_TEXTS)


# What an answer must match.

SCHEMAS = st.sampled_from(
    [
        {},
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"type": "string", "pattern": "^a+$"},
        {"type": "string", "format": "date-time", "minLength": 3},
        {"type": "array", "items": {"type": "number"}, "minItems": 2**40, "uniqueItems": True},
        {"type": "integer", "multipleOf": 3},
        {"anyOf": []},
        {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}},
        {"enum": [1, "a", None]},
        {"type": ["string", 7]},
    ]
)
REGEXES = st.sampled_from(
    ["a+", "(a|b)*c", "(", "[z-a]", "a{1,100000}", "(?=a)b", "\\", "a\0", "", "\\p{L}", "\ud800"]
)
GRAMMARS = st.sampled_from(
    ['root ::= "a" | "b"', 'start: "a"', "root ::= root", "", "::=", 'a ::= "a"', "start: (", "\0"]
)
TAGS = [
    {
        "type": "structural_tag",
        "format": {
            "type": "tag",
            "begin": "<a>",
            "content": {"type": "any_text"},
            "end": "</a>",
        },
    },
    {
        "type": "structural_tag",
        "structures": [{"begin": "<a>", "schema": {"type": "object"}, "end": "</a>"}],
        "triggers": ["<a"],
    },
    {"type": "structural_tag", "format": {"type": "nothing"}},
    {"type": "structural_tag", "structures": [], "triggers": []},
]
JSON_SCHEMAS = SCHEMAS | objects()
JSON_TEXTS = JSON_SCHEMAS.map(json.dumps) | st.sampled_from(["{", "NaN", "[" * 3000, "", "7"])
KINDS = {
    "json": mostly(JSON_SCHEMAS | JSON_TEXTS),
    "regex": mostly(REGEXES | WORDS, ANY_TEXTS),
    "choice": mostly(st.lists(WORDS, min_size=1, max_size=3), st.lists(ANY_TEXTS, max_size=3)),
    "grammar": mostly(GRAMMARS | WORDS, ANY_TEXTS),
    "json_object": mostly(st.just(True), SCALARS),
    "structural_tag": mostly(st.sampled_from(TAGS).map(json.dumps) | JSON_TEXTS, ANY_TEXTS),
}


@st.composite
def constraints(draw):
    """Draw what `structured_outputs` holds: mostly of one kind."""
    count = {7: 0, 13: 2}.get(draw(st.integers(0, 31)), 1)
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=count, max_size=count))
    value = {kind: draw(KINDS[kind]) for kind in kinds}
    if draw(st.integers(0, 7)) == 5:
        value["disable_any_whitespace"] = draw(BOOLEANS)
        value["whitespace_pattern"] = draw(mostly(REGEXES, ANY_TEXTS))
    return value


RESPONSE_FORMATS = st.one_of(
    st.sampled_from([{"type": "text"}, {"type": "json_object"}, *TAGS]),
    st.fixed_dictionaries(
        {
            "type": st.just("json_schema"),
            "json_schema": mostly(
                st.fixed_dictionaries({"name": NAMES, "schema": mostly(JSON_SCHEMAS)})
            ),
        }
    ),
)


# Fields.

SAMPLING = {
    "n": mostly(st.integers(1, MAX_N), INTEGERS),
    "seed": mostly(st.integers(-(2**63), 2**63 - 1), INTEGERS),
    "temperature": mostly(st.floats(0.001, 2), FLOATS),
    "top_p": mostly(st.floats(0, 1, exclude_min=True), FLOATS),
    "top_k": mostly(st.integers(-1, 2**70), INTEGERS),
    "min_p": mostly(st.floats(0, 1), FLOATS),
    "presence_penalty": mostly(st.floats(-2, 2), FLOATS),
    "frequency_penalty": mostly(st.floats(-2, 2), FLOATS),
    "repetition_penalty": mostly(st.floats(0, exclude_min=True, allow_infinity=False), FLOATS),
    "max_tokens": mostly(st.integers(3, MAX_MODEL_LEN), INTEGERS),
    "min_tokens": mostly(st.integers(0, 3), INTEGERS),
    "stop": mostly(WORDS | st.lists(WORDS, max_size=4), st.lists(ANY_TEXTS)),
    "stop_token_ids": mostly(TOKEN_ID_LISTS, st.lists(SCALARS, max_size=4)),
    "ignore_eos": BOOLEANS,
    "include_stop_str_in_output": BOOLEANS,
    "skip_special_tokens": BOOLEANS,
    "spaces_between_special_tokens": BOOLEANS,
    "logit_bias": mostly(
        st.one_of(SOME_BIASES, SOME_BIASES, SOME_BIASES, MANY_BIASES),
        st.dictionaries(ANY_TEXTS | INTEGERS.map(str), FLOATS, max_size=2),
    ),
    "prompt_logprobs": mostly(st.integers(0, 20), INTEGERS),
    "allowed_token_ids": mostly(TOKEN_ID_LISTS, st.lists(SCALARS, max_size=4)),
    "bad_words": mostly(st.lists(WORDS, max_size=4), st.lists(ANY_TEXTS, max_size=150)),
    "structured_outputs": mostly(constraints()),
    "repetition_detection": mostly(
        st.fixed_dictionaries(
            {},
            optional={
                "max_pattern_size": mostly(st.integers(0, 20), INTEGERS),
                "min_pattern_size": mostly(st.integers(0, 2), INTEGERS),
                "min_count": mostly(st.integers(2, 5), INTEGERS),
            },
        )
    ),
    "thinking_token_budget": mostly(st.sampled_from([-1, None]), INTEGERS),
    "watermarking": BOOLEANS,
    "routed_experts_prompt_start": mostly(st.integers(0, 2), INTEGERS),
    "stream_interval": mostly(st.integers(1, 2**70), INTEGERS),
}

SALTS = st.text(st.characters(codec="utf-8", exclude_characters="@/\\\0"), min_size=1)

COMMON = {
    "priority": mostly(st.integers(-(2**63), 2**63 - 1), INTEGERS),
    "request_id": NAMES,
    "session_id": NAMES,
    "cache_salt": mostly(SALTS, ANY_TEXTS),
    "model": mostly(st.sampled_from([MODEL, "", None]), ANY_TEXTS),
    "kv_transfer_params": objects(),
    "ec_transfer_params": objects(),
    "return_token_ids": BOOLEANS,
}

OPENAI = {
    "user": NAMES,
    "echo": BOOLEANS,
    "add_special_tokens": BOOLEANS,
    "response_format": mostly(RESPONSE_FORMATS),
    "vllm_xargs": objects(st.one_of(TEXTS, INTEGERS, FLOATS, st.lists(SCALARS, max_size=2))),
    "truncate_prompt_tokens": mostly(st.integers(-1, MAX_MODEL_LEN), INTEGERS),
    "truncation_side": mostly(st.sampled_from(["left", "right"]), ANY_TEXTS),
    "return_token_offsets": BOOLEANS,
    "return_tokens_as_token_ids": BOOLEANS,
    "return_weight_versions": BOOLEANS,
    "mm_payload": mostly(st.sampled_from(["tensors", "none"])),
    "something_else": ANYTHING,
}

STREAMED = {
    "stream": mostly(st.just(True), SCALARS),
    "stream_options": mostly(
        st.fixed_dictionaries(
            {}, optional={"include_usage": st.booleans(), "continuous_usage_stats": st.booleans()}
        )
    ),
}


def fields_of(struct, *tables):
    """Give the strategies for the fields of a body; those that no table has get anything."""
    known = {name: strategy for table in tables for name, strategy in table.items()}
    return dict.fromkeys(struct.__struct_fields__, ANYTHING) | known


@st.composite
def bodies(draw, needed, fields, groups=(), likely=()):
    """Draw a body with a few of the fields, and with some of the groups that go together.

    Of the fields, those that are likely make up half.
    """
    body = dict(draw(needed))
    names = draw(st.lists(st.sampled_from(sorted(likely or fields)), unique=True, max_size=5))
    names += draw(st.lists(st.sampled_from(sorted(fields)), unique=True, max_size=3))
    body |= {name: draw(fields[name]) for name in names}
    for group in groups:
        if draw(st.integers(0, 3)) == 0:
            body |= {name: draw(strategy) for name, strategy in group.items()}
    return body


# Chat.

PARTS = st.lists(
    mostly(st.fixed_dictionaries({"type": st.just("text"), "text": NAMES})), max_size=3
)
ROLES = st.sampled_from(["user", "assistant", "system", "tool", "developer", "critic"])
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": mostly(ROLES, ANY_TEXTS), "content": mostly(NAMES | PARTS)},
        optional={"name": NAMES, "reasoning": NAMES, "tool_calls": ANYTHING, "extra": ANYTHING},
    ),
    min_size=1,
    max_size=3,
)
TEMPLATES = st.sampled_from(["{{ messages }}", "{% for", "{{ 9 ** 9 ** 9 }}", "{{ a.b.c }}", "x"])
CHAT_TABLE = {
    "logprobs": BOOLEANS,
    "max_completion_tokens": mostly(st.integers(3, MAX_MODEL_LEN), INTEGERS),
    "add_generation_prompt": BOOLEANS,
    "chat_template_kwargs": objects(),
    "chat_template": mostly(TEMPLATES, ANY_TEXTS),
    "documents": mostly(st.lists(st.dictionaries(TEXTS, TEXTS, max_size=2), max_size=2)),
    "reasoning_effort": mostly(st.sampled_from(["none", "low", "high"])),
    "return_prompt_text": BOOLEANS,
}
CHAT_FIELDS = fields_of(ChatCompletionRequest, SAMPLING, COMMON, OPENAI, CHAT_TABLE)
RIVALS = {
    "logprobs": mostly(st.just(True), SCALARS),
    "top_logprobs": mostly(st.integers(0, 20), INTEGERS),
}
NAMED_RIVALS = {
    "logprobs": mostly(st.just(True), SCALARS),
    "logprob_token_ids": mostly(TOKEN_ID_LISTS, st.lists(SCALARS, max_size=4)),
}
CONTINUED = {
    "continue_final_message": mostly(st.just(True), SCALARS),
    "add_generation_prompt": mostly(st.just(False), SCALARS),
}
CHAT_BODIES = bodies(
    st.fixed_dictionaries({"messages": mostly(MESSAGES)}),
    CHAT_FIELDS,
    (STREAMED, RIVALS, NAMED_RIVALS, CONTINUED),
    SAMPLING,
)


# Completions.

PROMPTS = st.one_of(
    WORDS,
    TOKEN_ID_LISTS,
    st.lists(WORDS, min_size=1, max_size=3),
    st.lists(TOKEN_ID_LISTS, min_size=1, max_size=2),
)
ODD_PROMPTS = st.one_of(
    st.lists(ANY_TEXTS | INTEGERS, max_size=3),
    st.lists(st.lists(INTEGERS, max_size=2), max_size=3),
    st.sampled_from(["long " * 2040, "a" * 70_000]),
)
COMPLETION_TABLE = {
    "logprobs": mostly(st.integers(0, 20), INTEGERS),
    "suffix": mostly(st.none()),
    "prompt_embeds": mostly(st.none()),
}
COMPLETION_FIELDS = fields_of(CompletionRequest, SAMPLING, COMMON, OPENAI, COMPLETION_TABLE)
ECHOED = {
    "echo": mostly(st.just(True), SCALARS),
    "logprobs": mostly(st.integers(0, 20), INTEGERS),
    "max_tokens": mostly(st.integers(0, 2), INTEGERS),
}
NAMED_TOKENS = {
    "logprobs": mostly(st.integers(0, 5), INTEGERS),
    "logprob_token_ids": mostly(TOKEN_ID_LISTS, st.lists(SCALARS, max_size=4)),
}
BEST = {
    "n": mostly(st.integers(1, 3), INTEGERS),
    "best_of": mostly(st.integers(1, MAX_N), INTEGERS),
}
COMPLETION_BODIES = bodies(
    st.fixed_dictionaries({"prompt": mostly(PROMPTS, ODD_PROMPTS)}),
    COMPLETION_FIELDS,
    (STREAMED, ECHOED, NAMED_TOKENS, BEST),
    SAMPLING,
)


# Tokens in, tokens out.

GENERATE_SAMPLING_FIELDS = fields_of(
    GenerateSampling,
    SAMPLING,
    {
        "logprobs": mostly(st.integers(0, 20), INTEGERS),
        "logprob_token_ids": mostly(TOKEN_ID_LISTS, st.lists(SCALARS, max_size=4)),
        "extra_args": objects(),
        "detokenize": BOOLEANS,
        "prompt_logprob_token_ids": mostly(
            st.lists(st.lists(TOKEN_IDS | st.just(-1), max_size=3), max_size=4)
        ),
        "prompt_logprob_start": mostly(st.integers(0, 2), INTEGERS),
        "trace_decode_token_ids": mostly(st.none()),
    },
)
GENERATE_FIELDS = fields_of(
    GenerateRequest,
    COMMON,
    {
        "output_mode": mostly(st.just("tokens")),
        "features": mostly(st.none()),
        "content_parts": mostly(st.none()),
    },
)
GENERATE_BODIES = bodies(
    st.fixed_dictionaries(
        {
            "token_ids": mostly(TOKEN_ID_LISTS, st.lists(INTEGERS, max_size=3)),
            "sampling_params": mostly(
                bodies(st.just({}), GENERATE_SAMPLING_FIELDS, (), SAMPLING), objects()
            ),
        }
    ),
    GENERATE_FIELDS,
    (STREAMED,),
    COMMON,
)


# Headers, and bodies as bytes.

HEADER_NAMES = [
    b"X-Request-Id",
    b"X-Session-ID",
    b"X-Vllm-Priority",
    b"X-data-parallel-rank",
    b"traceparent",
    b"tracestate",
    b"Authorization",
    b"Origin",
    b"X-Amzn-SageMaker-Adapter-Identifier",
]
HEADER_VALUES = st.one_of(
    INTEGERS.map(lambda number: b"%d" % number),
    st.sampled_from([b"", b"1_0", b"+1", b"0x1", b"1.0", b"nan", b"a" * 4000, "\u0663".encode()]),
    # Visible characters, blanks, and bytes that are no UTF-8; DEL is no part of HTTP.
    st.binary(max_size=20).map(
        lambda data: bytes(byte | 0x20 for byte in data).replace(b"\x7f", b"").strip()
    ),
)
HEADERS = st.lists(
    st.tuples(st.sampled_from(HEADER_NAMES), HEADER_VALUES).map(b": ".join), max_size=2
)
OTHER_TYPES = [b"Content-Type: text/plain", b"Content-Type: application/json; charset=latin-1"]

DEEP = [b"[" * 3000, b'{"a":' * 3000, b'{"prompt":' + b"[" * 3000 + b"]" * 3000 + b"}"]
NUMBERS = [b"1e400", b"-1e400", b"9" * 5000, b"NaN", b"-Infinity", b"1.0e-400", b"01"]


@st.composite
def requests(draw, kinds):
    """Draw a request, and sometimes damage its body; `kinds` has the bodies of each path."""
    path = draw(st.sampled_from(sorted(kinds)))
    text = json.dumps(draw(kinds[path]), ensure_ascii=draw(st.booleans()))
    content = text.encode("utf-8", "surrogatepass")
    head = JSON_TYPE
    damage = draw(st.integers(0, 63))
    if damage == 23:
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(st.binary(max_size=4)) + content[at + 1 :]
    elif damage == 29:
        encoding = draw(st.sampled_from(["utf-16", "utf-32-be", "utf-8-sig"]))
        content = text.encode(encoding, "surrogatepass")
    elif damage == 31:
        content = draw(st.sampled_from(DEEP) | st.binary(max_size=20))
    elif damage == 37:
        number = draw(st.sampled_from(NUMBERS))
        content = b'{"prompt":"a","messages":[],"token_ids":[7],"n":' + number + b"}"
    elif damage == 41:
        head = draw(st.sampled_from(OTHER_TYPES))
    return Request(path, [head, *draw(HEADERS)], content)
