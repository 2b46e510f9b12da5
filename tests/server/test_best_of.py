"""best_of: more samples than answers, and the answers are the most likely ones."""

import math

import pytest

from umbel_engine.mock import MockStep, child_index
from umbel_server.best_of import mean_logprob
from umbel_text import TextDelta

WORDS = {"hi": 300, "yo": 301, " is": 314, " Paris": 7042, " London": 7043}


@pytest.fixture
def samples(rows):
    """Give the siblings of a request these tokens and log-probabilities, in index order."""

    def samples(*answers, prompt_logprobs=None):
        def script(request):
            answer = list(answers[child_index(request) % len(answers)].items())
            for index, (token_id, logprob) in enumerate(answer):
                yield MockStep(
                    token_ids=(token_id,),
                    logprobs=None
                    if request.sampling_params.logprobs is None
                    else rows({token_id: logprob}),
                    prompt_logprobs=prompt_logprobs if index == 0 else None,
                    finish="length" if index == len(answer) - 1 else None,
                )

        return script

    return samples


FOUR = ({300: -3.0}, {301: -1.0, 314: -1.0}, {7042: -0.5, 314: -2.0}, {7043: -2.0})
"""Means of -3, -1, -1.25 and -2."""


async def test_the_most_likely_samples_are_the_answers_the_best_first(serve, samples, sent):
    served = await serve(samples(*FOUR))
    whole = (await served.complete(n=2, best_of=4)).json()
    assert [choice["text"] for choice in whole["choices"]] == ["yo is", " Paris is"]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    # What was generated counts, whether it is told or not.
    assert whole["usage"] == {
        **whole["usage"],
        "prompt_tokens": 1,
        "completion_tokens": 6,
        "total_tokens": 7,
    }
    assert len(served.engine.adds) == 4
    # The log-probabilities were needed to choose, but nobody asked to see them.
    assert sent(served.engine).logprobs == 0
    assert all(choice["logprobs"] is None for choice in whole["choices"])


async def test_every_prompt_has_its_own_best(serve, rows):
    def script(request):
        (prompt,) = request.prompt_token_ids
        # Of "hi" the later samples are the better ones, of "yo" the earlier.
        index = child_index(request)
        logprob = -1.0 - (index if prompt == WORDS["yo"] else -index / 10)
        token_id = (7042, 7043, 314)[index]
        yield MockStep(token_ids=(token_id,), logprobs=rows({token_id: logprob}), finish="length")

    served = await serve(script)
    whole = (await served.complete(prompt=["hi", "yo"], n=2, best_of=3)).json()
    texts = [choice["text"] for choice in whole["choices"]]
    assert texts == [" is", " London", " Paris", " London"]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (2, 6)


async def test_samples_that_are_equally_likely_keep_their_order(serve, samples):
    served = await serve(samples({300: -1.0}, {301: -1.0}, {7042: -0.5}))
    whole = (await served.complete(n=3, best_of=3)).json()
    assert [choice["text"] for choice in whole["choices"]] == ["hi", "yo", " Paris"]
    whole = (await served.complete(n=2, best_of=3)).json()
    assert [choice["text"] for choice in whole["choices"]] == [" Paris", "hi"]


async def test_log_probabilities_that_were_asked_for_are_those_of_the_chosen(serve, samples, sent):
    served = await serve(samples(*FOUR))
    whole = (await served.complete(n=1, best_of=4, logprobs=0)).json()
    (choice,) = whole["choices"]
    assert choice["logprobs"]["tokens"] == ["yo", " is"]
    assert choice["logprobs"]["token_logprobs"] == [-1.0, -1.0]
    assert sent(served.engine).logprobs == 0


async def test_what_belongs_to_a_sample_goes_with_it(serve, samples, rows):
    script = samples(*FOUR, prompt_logprobs=rows({6005: -1.0}))
    served = await serve(script)
    body = {"prompt": "Hello world", "echo": True, "prompt_logprobs": 0}
    whole = (await served.complete(n=2, best_of=4, **body)).json()
    assert [choice["text"] for choice in whole["choices"]] == [
        "Hello worldyo is",
        "Hello world Paris is",
    ]
    assert [len(choice["prompt_logprobs"]) for choice in whole["choices"]] == [2, 2]


async def test_seeds_run_on_over_all_samples(serve, samples, seeds):
    served = await serve(samples(*FOUR))
    await served.complete(n=2, best_of=4, seed=7, request_id="x")
    assert list(seeds(served.engine).values()) == [7, 8, 9, 10]


@pytest.mark.parametrize("best_of", [None, 2])
async def test_no_more_samples_than_answers_need_no_log_probabilities(
    serve, samples, sent, best_of
):
    served = await serve(samples({300: -2.0}, {301: -1.0}))
    for stream in (False, True):
        got = await served.complete(n=2, best_of=best_of, stream=stream)
        assert got.status == 200
    assert len(served.engine.adds) == 4
    assert sent(served.engine).logprobs is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"n": 3, "best_of": 2},
            "You requested that the server return more choices than it will generate: `n` must be "
            "at most `best_of`, or omit either. (parameter=best_of, value=2)",
        ),
        (
            {"best_of": 0},
            "You requested that the server return more choices than it will generate: `n` must be "
            "at most `best_of`, or omit either. (parameter=best_of, value=0)",
        ),
        ({"best_of": 9}, "best_of must be at most 8. (parameter=best_of, value=9)"),
        (
            {"best_of": 2, "stream": True},
            "Results cannot be streamed when `best_of` is greater than `n`. (parameter=best_of, "
            "value=2)",
        ),
    ],
)
async def test_what_cannot_be_chosen_is_refused(serve, fields, message):
    served = await serve(max_n_sequences=8)
    refused = await served.complete(**fields)
    assert (refused.status, refused.error["message"]) == (400, message)
    assert (refused.error["type"], refused.error["param"]) == ("BadRequestError", "best_of")
    assert served.engine.adds == []


async def test_a_huge_number_is_refused_at_once(serve):
    served = await serve(max_n_sequences=8)
    refused = await served.complete(best_of=10**30)
    assert (refused.status, refused.error["param"]) == (400, "best_of")


async def test_several_samples_need_randomness_however_few_are_told(serve):
    served = await serve()
    refused = await served.complete(best_of=2, temperature=0)
    assert refused.status == 400
    assert refused.error["message"].startswith(
        "best_of must be 1 when using greedy sampling, got 2."
    )
    assert refused.error["param"] == "best_of"
    assert (await served.complete(best_of=1, temperature=0)).status == 200


async def test_a_chat_takes_no_notice_of_it(serve, samples):
    served = await serve(samples({300: -2.0}, {301: -1.0}))
    whole = (await served.ask(best_of=2)).json()
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["hi"]


def test_a_sample_without_tokens_is_the_least_likely():
    assert mean_logprob(TextDelta("", [])) == -math.inf
    assert mean_logprob(TextDelta("", [], [])) == -math.inf
