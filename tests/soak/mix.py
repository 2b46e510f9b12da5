"""What is asked: a mix of requests and of clients, the same ones for the same seed."""

import json
import random
from typing import NamedTuple

MODEL = "soak"
VOCABULARY_SIZE = 4096
"""Token ids that the engine draws from: so few that all their texts are known early."""

WRITE_TIMEOUT = 1.0
"""Seconds after which a client that does not read is cut off."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GENERATE = "/inference/v1/generate"
ABORT = "/inference/v1/abort_requests"
ID_PREFIXES = {CHAT: "chatcmpl", COMPLETIONS: "cmpl", GENERATE: "generate-tokens"}

UNKNOWN = "none"
"""What unknown paths are counted as."""

ENDLESS = 20_000
"""Tokens that nobody waits for."""

STOP = "STOP"
BEFORE_STOP = "one two three"
STOP_TEXT = f"{BEFORE_STOP}{STOP} four five"

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
    "he",
    "his",
    "but",
    "at",
    "are",
    "this",
    "have",
    "from",
    "or",
    "had",
    "an",
    "they",
    "which",
    "one",
    "you",
    "were",
    "all",
    "her",
    "she",
    "there",
    "would",
    "their",
    "we",
    "him",
    "been",
    "has",
    "when",
    "who",
    "will",
    "no",
    "more",
    "if",
    "out",
    "so",
    "up",
    "said",
    "what",
    "its",
    "about",
    "than",
    "into",
    "them",
    "can",
    "only",
    "other",
    "time",
    "new",
    "some",
    "could",
    "these",
]
"""What prompts are made of."""

LONGEST_PROMPT = 400
LONG_PROMPT = 5000
"""Words; a body with so many is read on a thread."""


TEMPLATES_FIRST = 8
LONG_FIRST = 120
"""So many requests come first, that all threads of the server are there when it is warm: each has
its own part of the memory, and keeps it."""


def scenario(tokenizer):
    """Write the rules of the engine, by what request ids contain."""
    fault = {"message": "out of memory"}
    busy = {"message": "try again", "retryable": True}
    stop_text = tokenizer.encode(STOP_TEXT, add_special_tokens=False).ids
    return [
        {"request_id": "*-never-*", "delay_steps": 10**6},
        {"request_id": "*-patient-*", "delay_steps": 1000},
        {"request_id": "*-stop-*", "token_ids": stop_text, "finish": "length"},
        {"request_id": "*-eos-*", "eos_after": 5},
        {"request_id": "*-fault-*", "child": 1, "error": fault},
        {"request_id": "*-later-*", "child": 1, "error": fault, "delay_steps": 40},
        {"request_id": "*-busy-*", "child": 0, "error": busy},
    ]


OK = frozenset({200})
SERVER_ERROR = frozenset({500})
UNAVAILABLE = frozenset({503})


class Ask(NamedTuple):
    """One request, what its client does, and what must come of it.

    `samples` are those of the engine, `choices` those of the answer, `tokens` those of a sample.
    `client` is a method of `tests.soak.clients.Clients`; `status` are those that it may get.
    """

    number: int
    kind: str
    path: str
    wire: bytes
    response_id: str
    client: str = "read"
    status: frozenset[int] = OK
    streams: bool = False
    samples: int = 1
    choices: int = 1
    tokens: int | None = None
    finish: str = "length"
    text: str | None = None
    logprobs: bool = False
    usage: bool = True
    fails: bool = False
    delay: float = 0.0
    counted_as: str | None = None

    @property
    def handler(self):
        """What its path is counted as."""
        return self.counted_as or self.path


class Mix:
    """Makes requests, one after the other."""

    def __init__(self, seed, processes=1):
        self._random = random.Random(seed)
        self._processes = processes
        self._number = 0
        self._makers = [getattr(self, name) for name in WEIGHTS]
        self._weights = list(WEIGHTS.values())

    def __iter__(self):
        return self

    def __next__(self):
        self._number += 1
        if self._number <= TEMPLATES_FIRST:
            return self.template()
        if self._number <= TEMPLATES_FIRST + LONG_FIRST:
            return self.long()
        (make,) = self._random.choices(self._makers, self._weights)
        return make()

    # Parts.

    def _text(self, longest=LONGEST_PROMPT):
        count = round(longest ** self._random.random())
        return " ".join(self._random.choices(WORDS, k=count))

    def _token_ids(self, longest=LONGEST_PROMPT):
        count = round(longest ** self._random.random())
        return [self._random.randrange(20, VOCABULARY_SIZE) for _ in range(count)]

    def _prompt(self, path):
        if path == CHAT:
            messages = [{"role": "user", "content": self._text()}]
            if self._random.random() < 0.2:
                messages.insert(0, {"role": "system", "content": self._text(40)})
            return {"messages": messages}
        if path == GENERATE:
            return {"token_ids": self._token_ids()}
        return {"prompt": self._text() if self._random.random() < 0.8 else self._token_ids()}

    def _ask(self, kind, path, n=1, max_tokens=16, streams=False, sampling=None, body=None, **rest):
        """Make a request with these sampling options and these fields of the body."""
        name = f"{kind}-{self._number}"
        options = {"n": n, "max_tokens": max_tokens, **(sampling or {})}
        full = {"request_id": name, **self._prompt(path), "stream": streams}
        full |= {"sampling_params": options} if path == GENERATE else options
        full |= body or {}
        rest.setdefault("samples", n)
        rest.setdefault("choices", n)
        rest.setdefault("tokens", max_tokens)
        # A stream tells its usage when it is asked to, and an answer in tokens by having them.
        usage = path != GENERATE and (not streams or "stream_options" in full)
        response_id = f"{ID_PREFIXES[path]}-{name}"
        wire = post(path, json.dumps(full).encode())
        return Ask(
            self._number, kind, path, wire, response_id, streams=streams, usage=usage, **rest
        )

    def _path(self):
        return self._random.choice((CHAT, CHAT, COMPLETIONS, COMPLETIONS, GENERATE))

    def _streams(self):
        return self._random.random() < 0.6

    def _n(self):
        return self._random.choice((1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 5, 8))

    def _max_tokens(self):
        return round(64 ** self._random.random())

    # Kinds; the names are the keys of the weights.

    def plain(self):
        path, streams = self._path(), self._streams()
        body = {}
        if streams and path != GENERATE and self._random.random() < 0.5:
            body["stream_options"] = {"include_usage": True}
        if self._random.random() < 0.1:
            body["cache_salt"] = f"salt-{self._number}"
        sampling = {"seed": self._number} if self._random.random() < 0.3 else {}
        return self._ask(
            "plain", path, self._n(), self._max_tokens(), streams, sampling=sampling, body=body
        )

    def logprobs(self):
        path, top = self._path(), self._random.randrange(4)
        sampling = {"logprobs": top}
        if path == CHAT:
            sampling = {"logprobs": True, "top_logprobs": top}
        return self._ask(
            "logprobs",
            path,
            self._random.choice((1, 2)),
            self._random.randrange(1, 20),
            self._streams(),
            sampling=sampling,
            logprobs=True,
        )

    def prompts(self):
        count, n = self._random.randrange(2, 5), self._random.choice((1, 2))
        body = {"prompt": [self._text(50) for _ in range(count)]}
        return self._ask(
            "prompts",
            COMPLETIONS,
            n,
            self._max_tokens(),
            self._streams(),
            body=body,
            samples=n * count,
            choices=n * count,
        )

    def best_of(self):
        n = self._random.randrange(1, 4)
        best_of = n + self._random.randrange(1, 4)
        return self._ask(
            "best", COMPLETIONS, n, self._max_tokens(), body={"best_of": best_of}, samples=best_of
        )

    def stop(self):
        """Stop strings: one that comes, and others that do not."""
        path = self._path()
        strings = [STOP, f"never {self._number}", "\N{SNOWMAN}"]
        return self._ask(
            "stop",
            path,
            self._n(),
            64,
            self._streams(),
            sampling={"stop": strings},
            finish="stop string",
            text=None if path == GENERATE else BEFORE_STOP,
            tokens=None,
        )

    def eos(self):
        return self._ask(
            "eos", self._path(), self._n(), 64, self._streams(), finish="stop", tokens=6
        )

    def long(self):
        """A body that is read on a thread."""
        text = " ".join(self._random.choices(WORDS, k=LONG_PROMPT))
        return self._ask(
            "long",
            COMPLETIONS,
            self._n(),
            self._max_tokens(),
            self._streams(),
            body={"prompt": text},
        )

    def constrained(self):
        """A schema that nobody has sent before; the engine does not heed it."""
        schema = {"type": "object", "properties": {f"field{self._number}": {"type": "string"}}}
        wanted = {"name": "made-up", "schema": schema}
        body = {"response_format": {"type": "json_schema", "json_schema": wanted}}
        return self._ask("constrained", CHAT, 1, 8, self._streams(), body=body)

    def template(self):
        """A chat template that nobody has sent before."""
        source = f"{self._number} {{{{ messages[0].content }}}}"
        return self._ask("template", CHAT, 1, 8, self._streams(), body={"chat_template": source})

    def patient(self):
        """A stream that gets comments before its tokens."""
        return self._ask("patient", self._path(), 2, 4, True)

    # Engines that fail.

    def fault(self):
        return self._fault("fault")

    def later_fault(self):
        return self._fault("later")

    def _fault(self, kind):
        """One of several samples fails; a stream may have begun with tokens of the others."""
        streams = self._streams()
        status = OK | SERVER_ERROR if streams else SERVER_ERROR
        n = self._random.randrange(2, 9)
        return self._ask(kind, self._path(), n, ENDLESS, streams, status=status, fails=True)

    def busy(self):
        streams = self._streams()
        # After a comment it is too late for a status.
        status = UNAVAILABLE | OK if streams else UNAVAILABLE
        return self._ask("busy", self._path(), 1, 8, streams, status=status, fails=True)

    # Clients that go away.

    def _leave(self, client, path=None, streams=True, kind="never", **rest):
        n = self._n()
        delay = self._random.random() * 0.05
        return self._ask(
            kind, path or self._path(), n, ENDLESS, streams, client=client, delay=delay, **rest
        )

    def leave_in_head(self):
        return self._leave("leave_in_head")

    def leave_in_body(self):
        return self._leave("leave_in_body")

    def leave_unanswered(self):
        return self._leave("leave_unanswered", streams=self._streams())

    def leave_stream(self):
        return self._leave("leave_stream", kind="left")

    def leave_sometime(self):
        """Go away while the answer may be on its way, or has just come."""
        return self._ask(
            "sometime",
            self._path(),
            self._n(),
            self._max_tokens(),
            self._streams(),
            client="leave_sometime",
            delay=self._random.random() * 0.1,
        )

    def never_read(self):
        return self._ask("stuck", self._path(), 4, ENDLESS, True, client="never_read")

    def aborted(self):
        return self._ask(
            "abort",
            self._path(),
            self._n(),
            ENDLESS,
            self._streams(),
            client="abort",
            finish="abort",
            tokens=None,
        )

    # What is refused.

    def bad_field(self):
        path = self._path()
        sampling = self._random.choice(
            (
                {"n": 0},
                {"n": 10**9},
                {"temperature": -1},
                {"max_tokens": "many"},
                {"top_p": 2 + self._number},
                {"n": 2, "temperature": 0},
                {"stop": [""]},
                {"logit_bias": {"999999": 1}},
            )
        )
        return self._ask(
            "bad", path, 1, 8, self._streams(), sampling=sampling, status=frozenset({400})
        )

    def bad_body(self):
        path = self._path()
        body = self._random.choice(
            (b"", b"[]", b"{", b"\xff", b'{"a":' * 2000, b"%d" % self._number)
        )
        return self._refused("bad-body", path, post(path, body), 400)

    def unknown_model(self):
        body = {"model": f"model-{self._number}"}
        return self._ask("no-model", self._path(), body=body, status=frozenset({404}))

    def unknown_path(self):
        path = f"/nothing/{self._number}"
        wire = f"GET {path} HTTP/1.1\r\nHost: soak\r\n\r\n".encode()
        return self._refused("no-path", path, wire, 404, counted_as=UNKNOWN)

    def too_long(self):
        size = 10**9 + self._number
        return self._refused("too-long", CHAT, head(CHAT, size), 413, client="read_and_leave")

    def no_request(self):
        """Bytes that are no request, and no request is counted for them."""
        wire = self._random.choice(
            (
                b"nothing\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                b"GET / HTTP/1.1\r\nX-A: %s\r\n\r\n" % (b"a" * 10_000),
                b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
            )
        )
        return self._refused("no-request", "", wire, 400, client="read_and_leave")

    def _refused(self, kind, path, wire, status, **rest):
        return Ask(
            self._number, kind, path, wire, "", status=frozenset({status}), samples=0, **rest
        )

    # What watches the server.

    def health(self):
        return self._watch("/health")

    def scrape(self):
        return self._watch("/metrics")

    def models(self):
        return self._watch("/v1/models")

    def _watch(self, path):
        wire = f"GET {path} HTTP/1.1\r\nHost: soak\r\n\r\n".encode()
        return Ask(self._number, "watch", path, wire, "", samples=0)


WEIGHTS = {
    "plain": 700,
    "logprobs": 30,
    "prompts": 20,
    "best_of": 20,
    "stop": 40,
    "eos": 20,
    "long": 4,
    "constrained": 5,
    "template": 0.5,
    "patient": 2,
    "fault": 10,
    "later_fault": 10,
    "busy": 5,
    "leave_in_head": 5,
    "leave_in_body": 10,
    "leave_unanswered": 20,
    "leave_stream": 20,
    "leave_sometime": 20,
    "never_read": 1,
    "aborted": 10,
    "bad_field": 15,
    "bad_body": 10,
    "unknown_model": 5,
    "unknown_path": 5,
    "too_long": 3,
    "no_request": 5,
    "health": 10,
    "scrape": 2,
    "models": 3,
}
"""How often each kind comes, in a thousand or so."""


def head(path, size):
    return (
        f"POST {path} HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n"
        f"Content-Length: {size}\r\n\r\n"
    ).encode()


def post(path, body):
    """Give the bytes of a request."""
    return head(path, len(body)) + body
