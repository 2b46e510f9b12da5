"""SageMaker's route: a body is answered as the kind of request that it is."""

import pytest

MESSAGES = [{"role": "user", "content": "Hello"}]
NO_KIND = (
    "Cannot find suitable handler for request. "
    "Expected one of: ['ChatCompletionRequest', 'CompletionRequest']"
)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"messages": MESSAGES}, "chat.completion"),
        ({"prompt": "Hello"}, "text_completion"),
        ({"messages": MESSAGES, "prompt": "Hello"}, "chat.completion"),
        ({"messages": [1], "prompt": "Hello"}, "text_completion"),
    ],
    ids=["chat", "completion", "both", "no chat"],
)
async def test_a_body_is_answered_as_what_it_is(serve, say, body, kind):
    served = await serve(lambda request: say("hi", "yo"), api_keys=("key",))
    answer = await served.post("/invocations", n=2, **body)
    assert (answer.status, answer.json()["object"]) == (200, kind)
    assert [choice["finish_reason"] for choice in answer.json()["choices"]] == ["length"] * 2


async def test_it_streams(serve, say):
    served = await serve(lambda request: say("hi"))
    events = (await served.post("/invocations", messages=MESSAGES, stream=True)).events
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


@pytest.mark.parametrize("body", [{"prompt": 5}, {"prompt": "Hello", "n": "many"}])
async def test_what_is_of_no_kind_is_refused(serve, body):
    served = await serve()
    answer = await served.post("/invocations", **body)
    assert answer.status == 400
    assert answer.error == {
        "message": NO_KIND,
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }


@pytest.mark.parametrize("body", [{}, {"input": "Hello"}, {"messages": MESSAGES, "n": "many"}])
async def test_what_has_no_prompt_is_refused_as_a_completion(serve, body):
    served = await serve()
    answer = await served.post("/invocations", **body)
    assert (answer.status, answer.error["param"]) == (400, "prompt")
    assert answer.error["message"].startswith("Either prompt or prompt_embeds must be provided")


@pytest.mark.parametrize(
    ("data", "content_type"), [("{", "application/json"), ("{}", "text/plain")]
)
async def test_what_is_no_json_is_refused(serve, data, content_type):
    served = await serve()
    answer = await served.get(
        "/invocations", "POST", data=data, headers={"Content-Type": content_type}
    )
    assert (answer.status, answer.error["type"]) == (400, "Bad Request")


async def test_a_fault_of_a_request_of_a_kind_is_told_as_elsewhere(serve):
    served = await serve()
    answer = await served.post("/invocations", prompt="Hello", n=0)
    assert (answer.status, answer.text) == (400, (await served.complete(n=0)).text)


async def test_the_model_is_the_one_that_the_header_names(serve, say):
    served = await serve(lambda request: say("hi"), served_model_names=("smollm2", "alias"))
    answer = await served.post("/invocations", prompt="Hello", model="of no account")
    assert (answer.status, answer.json()["model"]) == (200, "smollm2")
    for name, status in (("alias", 200), ("another", 404)):
        headers = {"X-Amzn-SageMaker-Adapter-Identifier": name}
        answer = await served.post("/invocations", headers, prompt="Hello", model="smollm2")
        assert answer.status == status


async def test_an_invocation_counts_once_to_the_load(serve, say):
    served = await serve(lambda request: say("hi"), engine_options={"paused": True})
    async with served.stream("/invocations", prompt="Hello"):
        await served.engine.wait_adds()
        assert (await served.get("/load")).json() == {"server_load": 1}
