"""Tokens that read the same can be told apart: they are written by their ids, or named by them."""

import pytest

from umbel_engine.mock import MockStep, child_index

PARIS, LONDON, IS, HI, EOS = 7042, 7043, 314, 300, 2


@pytest.fixture
def answer(rows):
    """Say a city and " is", with the log-probabilities that were asked for."""

    def answer(request):
        city = (PARIS, LONDON)[child_index(request) % 2]
        named = request.sampling_params.logprob_token_ids
        for index, token_id in enumerate((city, IS)):
            rivals = dict.fromkeys(named, -3.0) if named else {EOS: -2.0, HI: -4.0}
            yield MockStep(
                token_ids=(token_id,),
                logprobs=rows({token_id: -0.5, **rivals}),
                finish="length" if index else None,
            )

    return answer


async def completion_logprobs(served, stream=False, **body):
    """Give the log-probabilities of each choice of a completion, joined if it streams."""
    got = await served.complete(stream=stream, max_tokens=2, **body)
    assert got.status == 200, got.text
    if not stream:
        return [choice["logprobs"] for choice in got.json()["choices"]]
    joined = {}
    for event in got.events:
        (choice,) = event["choices"]
        into = joined.setdefault(choice["index"], {name: [] for name in choice["logprobs"]})
        for name, values in choice["logprobs"].items():
            into[name] += values
    return [joined[index] for index in sorted(joined)]


async def chat_logprobs(served, stream=False, **body):
    """Give the tokens of each choice of a chat, joined if it streams."""
    got = await served.ask(stream=stream, logprobs=True, **body)
    assert got.status == 200, got.text
    if not stream:
        return [choice["logprobs"]["content"] for choice in got.json()["choices"]]
    joined = {}
    for event in got.events:
        for choice in event["choices"]:
            if choice["logprobs"] is not None:
                joined.setdefault(choice["index"], []).extend(choice["logprobs"]["content"])
    return [joined[index] for index in sorted(joined)]


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@both
async def test_tokens_of_a_completion_are_written_by_their_ids(serve, answer, stream):
    served = await serve(answer)
    body = {"logprobs": 1, "return_tokens_as_token_ids": True, "n": 2}
    paris, london = await completion_logprobs(served, stream, **body)
    assert paris == {
        "text_offset": [0, len("token_id:7042")],
        "token_logprobs": [-0.5, -0.5],
        "tokens": ["token_id:7042", "token_id:314"],
        "top_logprobs": [
            {"token_id:7042": -0.5, "token_id:2": -2.0},
            {"token_id:314": -0.5, "token_id:2": -2.0},
        ],
    }
    assert london["tokens"] == ["token_id:7043", "token_id:314"]


@both
async def test_tokens_of_a_chat_are_written_by_their_ids(serve, answer, stream):
    served = await serve(answer)
    body = {"top_logprobs": 2, "return_tokens_as_token_ids": True, "n": 2}
    paris, london = await chat_logprobs(served, stream, **body)
    # The bytes of the token are its own, those of its rivals spell the id, as with vLLM.
    assert paris[0] == {
        "token": "token_id:7042",
        "logprob": -0.5,
        "bytes": list(b" Paris"),
        "top_logprobs": [
            {"token": "token_id:7042", "logprob": -0.5, "bytes": list(b"token_id:7042")},
            {"token": "token_id:2", "logprob": -2.0, "bytes": list(b"token_id:2")},
        ],
    }
    assert [token["token"] for token in london] == ["token_id:7043", "token_id:314"]


@pytest.mark.parametrize(
    ("server", "asked", "names"),
    [(True, None, True), (True, False, False), (False, None, False), (False, True, True)],
)
async def test_the_request_decides_and_else_the_server(serve, answer, server, asked, names):
    served = await serve(answer, return_tokens_as_token_ids=server)
    body = {} if asked is None else {"return_tokens_as_token_ids": asked}
    (completion,) = await completion_logprobs(served, logprobs=0, **body)
    assert completion["tokens"][0] == ("token_id:7042" if names else " Paris")
    (chat,) = await chat_logprobs(served, **body)
    assert chat[0]["token"] == completion["tokens"][0]


async def test_tokens_of_an_echoed_prompt_are_written_by_their_ids(serve, rows):
    step = MockStep(
        token_ids=(PARIS,),
        logprobs=rows({PARIS: -0.5}),
        prompt_logprobs=rows({6005: -1.0}),
        finish="length",
    )
    served = await serve(lambda request: [step])
    body = {"prompt": "Hello world", "echo": True, "return_tokens_as_token_ids": True}
    (got,) = await completion_logprobs(served, logprobs=0, **body)
    assert got["tokens"] == ["token_id:6004", "token_id:6005", "token_id:7042"]
    assert got["top_logprobs"][:2] == [None, {"token_id:6005": -1.0}]
    # The field of the prompt has its ids as keys in any case.
    whole = (await served.complete(logprobs=0, **body)).json()
    assert whole["choices"][0]["prompt_logprobs"][1]["6005"]["decoded_token"] == " world"


# Tokens that the request names.


NAMED = [HI, PARIS, EOS]


@both
async def test_named_tokens_are_all_told_with_every_token_of_a_completion(
    serve, answer, sent, stream
):
    served = await serve(answer)
    body = {"logprobs": 0, "logprob_token_ids": NAMED, "n": 2}
    _, london = await completion_logprobs(served, stream, **body)
    assert london["top_logprobs"][0] == {
        " London": -0.5,
        "hi": -3.0,
        " Paris": -3.0,
        "<|im_end|>": -3.0,
    }
    params = sent(served.engine)
    # They take the place of the most likely ones.
    assert (params.logprob_token_ids, params.logprobs) == (NAMED, None)


@both
async def test_named_tokens_are_all_told_with_every_token_of_a_chat(serve, answer, sent, stream):
    served = await serve(answer)
    _, london = await chat_logprobs(served, stream, logprob_token_ids=NAMED, n=2)
    assert [entry["token"] for entry in london[0]["top_logprobs"]] == [
        " London",
        "hi",
        " Paris",
        "<|im_end|>",
    ]
    params = sent(served.engine)
    assert (params.logprob_token_ids, params.logprobs) == (NAMED, None)


async def test_a_sampled_token_that_is_named_is_told_once(serve, answer):
    served = await serve(answer)
    (paris,) = await chat_logprobs(served, logprob_token_ids=[PARIS, HI])
    assert [entry["token"] for entry in paris[0]["top_logprobs"]] == [" Paris", "hi"]


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("ask", {}, "when using `logprob_token_ids`, `logprobs` must be set to true."),
        ("complete", {}, "when using `logprob_token_ids`, `logprobs` must be set."),
        (
            "complete",
            {"logprobs": 1, "echo": True, "max_tokens": 0},
            "`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0` because no "
            "output tokens are generated.",
        ),
    ],
)
async def test_tokens_are_named_with_log_probabilities_only(serve, answer, kind, fields, message):
    served = await serve(answer)
    refused = await getattr(served, kind)(logprob_token_ids=[5], **fields)
    assert refused.status == 400
    assert refused.error["message"] == f"{message} (parameter=logprob_token_ids)"
    assert refused.error["param"] == "logprob_token_ids"


async def test_tokens_out_of_the_vocabulary_cannot_be_named(serve, answer):
    served = await serve(answer)
    refused = await served.ask(logprobs=True, logprob_token_ids=[5, 49152, -1])
    assert (refused.status, refused.error["param"]) == (400, "logprob_token_ids")
    assert refused.error["message"].startswith("token_id(s) [49152, -1] in logprob_token_ids")
    assert served.engine.adds == []
