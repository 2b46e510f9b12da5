"""An answer may repeat its prompt, and the log-probabilities of it."""

import pytest

from umbel_engine.mock import MockStep, child_index

HELLO, WORLD, HI, YO = 6004, 6005, 300, 301
PARIS, LONDON, IS, EOS = 7042, 7043, 314, 2

PROMPT_ROWS = ({WORLD: -1.0, HI: -0.25}, {PARIS: -2.0, HI: -0.75}, {YO: -3.0, HI: -1.25})
"""Log-probabilities of the tokens after "Hello", for prompts of up to four."""


@pytest.fixture
def answer(rows):
    """Say a city and " is", with log-probabilities of these and of the prompt, as asked for."""

    def answer(request):
        params, city = request.sampling_params, (PARIS, LONDON)[child_index(request) % 2]
        wants = params.logprobs is not None
        wants_prompt = params.prompt_logprobs is not None and len(request.prompt_token_ids) > 1
        tokens = [city, IS][: params.max_tokens]
        for index, token_id in enumerate(tokens):
            yield MockStep(
                token_ids=(token_id,),
                logprobs=rows({token_id: -0.5, EOS: -4.0}) if wants else None,
                prompt_logprobs=rows(*PROMPT_ROWS[: len(request.prompt_token_ids) - 1])
                if wants_prompt and index == 0
                else None,
                finish="length" if index == len(tokens) - 1 else None,
            )

    return answer


def choices_of(events):
    """Put the events of a stream together, choice by choice."""
    choices = {}
    for event in events:
        for part in event["choices"]:
            choice = choices.setdefault(part["index"], {"text": "", "events": 0})
            choice["text"] += part["text"]
            choice["events"] += 1
            for name in ("finish_reason", "prompt_token_ids"):
                if part[name] is not None:
                    assert choice.get(name) is None
                    choice[name] = part[name]
            for name, values in (part["logprobs"] or {}).items():
                choice.setdefault(name, []).extend(values)
    return [choices[index] for index in range(len(choices))]


# Text.


async def test_the_prompt_stands_before_every_answer_to_it(serve, answer, sent):
    served = await serve(answer)
    prompts = ["Hello world", "hi"]
    body = {"prompt": prompts, "echo": True, "n": 2, "max_tokens": 2}
    whole = (await served.complete(**body)).json()
    expected = ["Hello world Paris is", "Hello world London is", "hi Paris is", "hi London is"]
    assert [choice["text"] for choice in whole["choices"]] == expected
    assert [choice["prompt_token_ids"] for choice in whole["choices"]] == [None] * 4
    assert whole["usage"]["completion_tokens"] == 8
    streamed = choices_of((await served.complete(stream=True, **body)).events)
    assert [choice["text"] for choice in streamed] == expected
    # In a stream the first event of a choice has the token ids, asked for or not.
    ids = [[HELLO, WORLD]] * 2 + [[HI]] * 2
    assert [choice["prompt_token_ids"] for choice in streamed] == ids
    params = sent(served.engine)
    assert (params.logprobs, params.prompt_logprobs, params.max_tokens) == (None, None, 2)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_in_token_ids_is_repeated_as_text_special_tokens_included(
    serve, answer, stream
):
    served = await serve(answer)
    body = {"prompt": [1, HELLO, EOS, WORLD], "echo": True, "max_tokens": 1}
    got = await served.complete(stream=stream, **body)
    choices = got.events[0]["choices"] if stream else got.json()["choices"]
    assert choices[0]["text"] == "<|im_start|>Hello<|im_end|> world Paris"


@pytest.mark.parametrize("stream", [False, True])
async def test_returned_token_ids_stand_for_the_text_of_the_prompt(serve, answer, stream):
    served = await serve(answer)
    body = {"prompt": "Hello world", "echo": True, "max_tokens": 1, "return_token_ids": True}
    got = await served.complete(stream=stream, **body)
    (choice,) = got.events[0]["choices"] if stream else got.json()["choices"]
    assert choice["text"] == " Paris"
    assert choice["prompt_token_ids"] == [HELLO, WORLD]
    assert choice["token_ids"] == [PARIS]


async def test_of_a_prompt_that_is_cut_a_text_is_repeated_whole_and_token_ids_as_kept(
    serve, answer
):
    served = await serve(answer)
    body = {"echo": True, "max_tokens": 1, "truncate_prompt_tokens": 1}
    for prompt, text in (("Hello world", "Hello world Paris"), ([HELLO, WORLD], " world Paris")):
        whole = (await served.complete(prompt=prompt, **body)).json()
        assert whole["choices"][0]["text"] == text
        assert whole["usage"]["prompt_tokens"] == 1
    assert [add.prompt_token_ids for add in served.engine.adds] == [[WORLD], [WORLD]]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_echo_of_the_prompt_alone_hides_the_token_that_had_to_be_generated(
    serve, answer, stream, sent
):
    served = await serve(answer)
    body = {"prompt": "Hello world", "echo": True, "max_tokens": 0, "n": 2, "logprobs": 1}
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    got = await served.complete(**body, **options)
    if stream:
        *events, last = got.events
        choices, usage = [event["choices"][0] for event in events], last["usage"]
    else:
        choices, usage = got.json()["choices"], got.json()["usage"]
    assert [choice["index"] for choice in choices] == [0, 1]
    for choice in choices:
        assert (choice["text"], choice["finish_reason"]) == ("Hello world", "length")
        assert choice["logprobs"] == {
            "text_offset": [0, 5],
            "token_logprobs": [None, -1.0],
            "tokens": ["Hello", " world"],
            "top_logprobs": [None, {" world": -1.0, "hi": -0.25}],
        }
    assert usage == {**usage, "prompt_tokens": 2, "completion_tokens": 2}
    params = sent(served.engine)
    assert (params.max_tokens, params.logprobs, params.prompt_logprobs) == (1, 1, 1)


# Log-probabilities.


EXPECTED = {
    "text_offset": [0, 5, 11, 17],
    "token_logprobs": [None, -1.0, -0.5, -0.5],
    "tokens": ["Hello", " world", " Paris", " is"],
    "top_logprobs": [
        None,
        {" world": -1.0, "hi": -0.25},
        {" Paris": -0.5, "<|im_end|>": -4.0},
        {" is": -0.5, "<|im_end|>": -4.0},
    ],
}


async def test_log_probabilities_of_the_prompt_come_before_those_of_every_answer(
    serve, answer, sent
):
    served = await serve(answer)
    body = {"prompt": "Hello world", "echo": True, "max_tokens": 2, "logprobs": 1, "n": 2}
    choices = (await served.complete(**body)).json()["choices"]
    assert choices[0]["logprobs"] == EXPECTED
    assert choices[1]["logprobs"]["tokens"] == ["Hello", " world", " London", " is"]
    for choice in choices:
        assert choice["prompt_logprobs"] == [
            None,
            {
                str(WORLD): {"logprob": -1.0, "rank": 1, "decoded_token": " world"},
                str(HI): {"logprob": -0.25, "rank": 1, "decoded_token": "hi"},
            },
        ]
    params = sent(served.engine)
    assert (params.logprobs, params.prompt_logprobs) == (1, 1)


async def test_a_stream_has_the_log_probabilities_of_the_prompt_in_the_first_event_of_each_choice(
    serve, answer
):
    served = await serve(answer)
    body = {"prompt": ["Hello world", "hi"], "echo": True, "max_tokens": 2, "logprobs": 1, "n": 2}
    choices = choices_of((await served.complete(stream=True, **body)).events)
    assert {name: choices[0][name] for name in EXPECTED} == EXPECTED
    assert [choice["tokens"] for choice in choices] == [
        ["Hello", " world", " Paris", " is"],
        ["Hello", " world", " London", " is"],
        ["hi", " Paris", " is"],
        ["hi", " London", " is"],
    ]
    assert choices[3]["text_offset"] == [0, 2, 9]
    assert choices[3]["token_logprobs"] == [None, -0.5, -0.5]


async def test_the_prompt_has_as_many_rivals_as_it_was_asked_for_separately(serve, answer, sent):
    served = await serve(answer)
    body = {"prompt": "Hello world", "echo": True, "max_tokens": 1, "logprobs": 1}
    whole = (await served.complete(prompt_logprobs=0, **body)).json()
    (choice,) = whole["choices"]
    assert choice["logprobs"]["top_logprobs"][1] == {" world": -1.0}
    assert list(choice["prompt_logprobs"][1]) == [str(WORLD)]
    params = sent(served.engine)
    assert (params.logprobs, params.prompt_logprobs) == (1, 0)


async def test_log_probabilities_are_those_of_the_tokens_that_were_kept(serve, answer):
    served = await serve(answer)
    body = {"prompt": "hi Hello world", "echo": True, "max_tokens": 1, "logprobs": 0}
    whole = (await served.complete(truncate_prompt_tokens=2, **body)).json()
    (choice,) = whole["choices"]
    assert choice["text"] == "hi Hello world Paris"
    assert choice["logprobs"]["tokens"] == ["Hello", " world", " Paris"]
