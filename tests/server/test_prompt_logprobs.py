"""Log-probabilities of the prompt, in a field of their own."""

import math

import pytest

from umbel_engine.mock import MockStep

HELLO, WORLD, HI = 6004, 6005, 300
PARIS = 7042

CHAT_PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def answer(rows):
    """Say " Paris"; every token of the prompt is as likely as one rival."""

    def answer(request):
        positions = [{token_id: -0.5, HI: -1.0} for token_id in request.prompt_token_ids[1:]]
        wants = request.sampling_params.prompt_logprobs is not None and positions
        yield MockStep(
            token_ids=(PARIS,),
            logprobs=None
            if request.sampling_params.logprobs is None
            else rows({PARIS: -0.5, HI: -1.0}),
            prompt_logprobs=rows(*positions) if wants else None,
            finish="length",
        )

    return answer


def entry(logprob, rank, text):
    return {"logprob": logprob, "rank": rank, "decoded_token": text}


async def test_every_choice_of_a_completion_has_those_of_its_prompt(serve, answer, sent):
    served = await serve(answer)
    body = {"prompt": ["Hello world", "hi"], "prompt_logprobs": 1, "n": 2}
    choices = (await served.complete(**body)).json()["choices"]
    world = {str(WORLD): entry(-0.5, 1, " world"), str(HI): entry(-1.0, 1, "hi")}
    assert [choice["prompt_logprobs"] for choice in choices] == [[None, world]] * 2 + [[None]] * 2
    assert [choice["text"] for choice in choices] == [" Paris"] * 4
    assert all(choice["logprobs"] is None for choice in choices)
    params = sent(served.engine)
    assert (params.prompt_logprobs, params.logprobs) == (1, None)


async def test_a_chat_has_them_once_for_all_choices(serve, answer, sent, tokenizer):
    served = await serve(answer)
    whole = (await served.ask(prompt_logprobs=1, n=2)).json()
    prompt = tokenizer.encode(CHAT_PROMPT).ids
    first, *others = whole["prompt_logprobs"]
    assert first is None
    assert [int(next(iter(position))) for position in others] == prompt[1:]
    assert [
        position[str(token)]["logprob"] for position, token in zip(others, prompt[1:], strict=True)
    ] == [-0.5] * len(others)
    assert all("prompt_logprobs" not in choice for choice in whole["choices"])
    params = sent(served.engine)
    assert (params.prompt_logprobs, params.logprobs) == (1, None)


async def test_no_more_rivals_are_told_than_were_asked_for(serve, answer):
    # The engine sends what the request in its batch wants that wants the most.
    served = await serve(answer)
    (choice,) = (await served.complete(prompt="Hello world", prompt_logprobs=0)).json()["choices"]
    assert choice["prompt_logprobs"] == [None, {str(WORLD): entry(-0.5, 1, " world")}]


async def test_without_being_asked_for_they_are_null(serve, answer):
    served = await serve(answer)
    assert (await served.ask()).json()["prompt_logprobs"] is None
    (choice,) = (await served.complete()).json()["choices"]
    assert choice["prompt_logprobs"] is None


async def test_minus_infinity_is_a_number_that_json_has(serve, rows):
    step = MockStep(
        token_ids=(PARIS,), prompt_logprobs=rows({WORLD: -math.inf, HI: -0.0}), finish="length"
    )
    served = await serve(lambda request: [step])
    (choice,) = (await served.complete(prompt="Hello world", prompt_logprobs=1)).json()["choices"]
    assert choice["prompt_logprobs"][1][str(WORLD)]["logprob"] == -9999.0


async def test_an_echoed_chat_asks_for_them_with_its_top_logprobs(serve, answer, sent):
    served = await serve(answer)
    whole = (await served.ask(echo=True, logprobs=True, top_logprobs=1, n=2)).json()
    assert [len(position) for position in whole["prompt_logprobs"][1:]][:1] == [2]
    params = sent(served.engine)
    assert (params.prompt_logprobs, params.logprobs) == (1, 1)


async def test_an_echoed_chat_that_streams_does_not_compute_them(serve, answer, sent):
    served = await serve(answer)
    events = (await served.ask(echo=True, stream=True, n=2)).events
    assert all("prompt_logprobs" not in event for event in events)
    assert sent(served.engine).prompt_logprobs is None


@pytest.mark.parametrize("kind", ["ask", "complete"])
@pytest.mark.parametrize(
    ("value", "stream", "message", "param"),
    [
        (
            1,
            True,
            "`prompt_logprobs` are not available when `stream=True`. (parameter=prompt_logprobs)",
            "prompt_logprobs",
        ),
        (
            -1,
            True,
            "`prompt_logprobs` are not available when `stream=True`. (parameter=prompt_logprobs)",
            "prompt_logprobs",
        ),
        (
            -2,
            False,
            "`prompt_logprobs` must be a positive value or -1. (parameter=prompt_logprobs, "
            "value=-2)",
            "prompt_logprobs",
        ),
        (
            21,
            False,
            "Requested prompt logprobs of 21, which is greater than max allowed: 20 "
            "(parameter=prompt_logprobs, value=21)",
            "prompt_logprobs",
        ),
        (
            "1",
            False,
            "`prompt_logprobs` must be an integer. (parameter=prompt_logprobs, value=1)",
            "prompt_logprobs",
        ),
    ],
)
async def test_numbers_that_cannot_be_had_are_refused(
    serve, answer, kind, value, stream, message, param
):
    served = await serve(answer)
    refused = await getattr(served, kind)(prompt_logprobs=value, stream=stream)
    assert (refused.status, refused.error["message"]) == (400, message)
    assert (refused.error["type"], refused.error["param"]) == ("BadRequestError", param)
    assert served.engine.adds == []


async def test_zero_can_be_asked_of_a_stream_and_is_told_to_nobody(serve, answer):
    served = await serve(answer)
    (event,) = (await served.complete(prompt_logprobs=0, stream=True)).events
    assert "prompt_logprobs" not in event["choices"][0]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_rendered_prompt_is_returned_where_it_is_asked_for(serve, answer, stream):
    served = await serve(answer)
    answers = [
        await served.ask(return_prompt_text=asked, stream=stream, n=2)
        for asked in (True, False, None)
    ]
    if stream:
        # It stands in the events that tell the role, of which there is one for each choice.
        texts = [[event.get("prompt_text") for event in got.events[:2]] for got in answers]
        assert texts == [[CHAT_PROMPT] * 2, [None] * 2, [None] * 2]
        assert "prompt_text" not in answers[0].events[2]
    else:
        texts = [got.json()["prompt_text"] for got in answers]
        assert texts == [CHAT_PROMPT, None, None]
