"""Chat templates of requests over HTTP: whatever they do, others are served."""

import asyncio
import threading

import pytest

from umbel_chat import ChatLlm, TemplateLimits
from umbel_chat.processes import MIB
from umbel_server.template_threads import TemplateThreads

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
DOUBLING = (
    "{% set ns = namespace(x='ab') %}"
    "{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}"
)
OWN = "<|im_start|>{{ messages[0].content }}"
TIMEOUT = 20

# What bodies say, and the end of the message that they get.
HOSTILE = {
    "too long": ("x" * 100_001, "has 100001 characters, more than the limit of 100000."),
    "endless": (ENDLESS, "took longer than the limit of 1 s."),
    "greedy": (DOUBLING, "took more memory than the limit of 64 MiB."),
    "verbose": ("{{ 'x' * 2000000 }}", "made more text than the limit of 1 MiB."),
    "deep": ("{{ " + "(" * 50_000, "maximum recursion depth exceeded"),
    "nested": ("{% for x in y %}" * 30 + "{% endfor %}" * 30, "too many statically nested blocks"),
    "half a character": ("{{ '\\ud800' }}", "TextEncodeInput must be"),
    "snooping": ("{{ messages.__class__.x }}", "attribute '__class__' of 'list' object is unsafe."),
}
LIMITS = TemplateLimits(source=100_000, seconds=1, memory=64 * MIB, output=MIB, at_once=2)


async def healthy_while(served, asking):
    """Ask for health again and again until something else is answered."""
    task = asyncio.ensure_future(asking)
    answered = 0
    while not task.done():
        assert (await served.get("/health")).status == 200
        answered += 1
        await asyncio.wait((task,), timeout=0.02)
    return await task, answered


@pytest.mark.parametrize(("template", "words"), HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_template_is_refused_while_others_are_served(serve, template, words):
    served = await serve(trust_request_template=True, template_limits=LIMITS)
    refused, answered = await healthy_while(served, served.ask(chat_template=template))
    assert (refused.status, refused.error["type"]) == (400, "BadRequestError")
    assert words in refused.error["message"]
    assert refused.error["param"] is None
    assert answered > 1 or template.startswith("x")
    assert served.engine.adds == []
    # The next one is served as if nothing had been.
    assert (await served.ask(chat_template=OWN, max_tokens=1)).status == 200


ROUTES = {
    "/tokenize": {},
    "/v1/chat/completions/render": {},
    "/invocations": {},
    "/v1/chat/completions": {"stream": True},
}


@pytest.mark.parametrize(("path", "body"), ROUTES.items())
async def test_every_route_that_takes_a_template_confines_it(serve, path, body):
    served = await serve(trust_request_template=True, template_limits=LIMITS, enable_scale_out=True)
    messages = [{"role": "user", "content": "Hello"}]
    asking = served.post(path, messages=messages, chat_template=ENDLESS, **body)
    refused, answered = await healthy_while(served, asking)
    assert refused.status == 400
    assert "took longer" in refused.error["message"]
    assert answered > 1
    assert (
        await served.post(path, messages=messages, chat_template=OWN, max_tokens=1)
    ).status == 200


async def test_what_is_echoed_is_read_for_the_template_of_the_request(serve):
    served = await serve(trust_request_template=True)
    parts = (
        "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
    )
    messages = [
        {"role": "assistant", "content": [{"type": "text", "text": t} for t in ("He", "llo")]}
    ]
    got = await served.ask(
        chat_template=parts, messages=messages, echo=True, add_generation_prompt=False, max_tokens=1
    )
    assert got.status == 200
    assert got.json()["choices"][0]["message"]["content"].startswith("He\nllo")


@pytest.fixture
def held(monkeypatch):
    """Hold whatever renders a template of a request until it is let go; tells how many do."""
    release = threading.Event()
    inside = threading.Semaphore(0)
    lower = ChatLlm.lower

    def hold(self, request, n=1):
        if self.brings_template(request):
            inside.release()
            assert release.wait(TIMEOUT)
        return lower(self, request, n)

    monkeypatch.setattr(ChatLlm, "lower", hold)
    yield inside, release
    release.set()


async def test_long_prompts_do_not_wait_behind_templates(serve, held):
    inside, release = held
    served = await serve(trust_request_template=True)
    # More of them than the threads that everybody shares.
    waiting = [
        asyncio.ensure_future(served.ask(chat_template=OWN, max_tokens=1)) for _ in range(40)
    ]
    for _ in range(TemplateLimits().at_once):
        assert await asyncio.to_thread(inside.acquire, timeout=TIMEOUT)
    content = "Hello" + " " * 20_000
    template_arguments = {"unused": content}
    got = await served.ask(chat_template_kwargs=template_arguments, max_tokens=1)
    assert got.status == 200
    assert not any(task.done() for task in waiting)
    assert not inside.acquire(blocking=False)
    release.set()
    assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}


async def test_a_client_that_goes_away_gives_up_its_turn(
    serve, held, monkeypatch, handler_cancellation
):
    inside, release = held
    turns = asyncio.Queue()
    run = TemplateThreads.run

    async def watched_run(*arguments):
        turns.put_nowait("waits")
        try:
            return await run(*arguments)
        finally:
            turns.put_nowait("goes")

    monkeypatch.setattr(TemplateThreads, "run", watched_run)
    served = await serve(
        trust_request_template=True,
        template_limits=LIMITS,
        handler_cancellation=handler_cancellation,
    )
    first = [asyncio.ensure_future(served.ask(chat_template=OWN, max_tokens=1)) for _ in range(2)]
    for _ in first:
        assert await asyncio.to_thread(inside.acquire, timeout=TIMEOUT)
    messages = [{"role": "user", "content": "Hello"}]
    client = await served.raw("/v1/chat/completions", messages=messages, chat_template=OWN)
    async with asyncio.timeout(TIMEOUT):
        assert [await turns.get() for _ in range(3)] == ["waits"] * 3
        client.close()
        assert await turns.get() == "goes"
    release.set()
    assert {answer.status for answer in await asyncio.gather(*first)} == {200}
    assert not inside.acquire(blocking=False)
    assert len(served.engine.adds) == 2


# The model's own template, and what clients put in its way.


def nested(depth, opening="[", closing="]"):
    return opening * depth + "1" + closing * depth


def body_of(content='"Hello"', rest=""):
    return f'{{"messages": [{{"role": "user", "content": {content}}}], "max_tokens": 1{rest}}}'


BODIES = {
    "deep arguments": body_of(rest=f', "chat_template_kwargs": {{"x": {nested(400)}}}'),
    "deeper arguments": body_of(rest=f', "chat_template_kwargs": {{"x": {nested(900)}}}'),
    "deepest arguments": body_of(rest=f', "chat_template_kwargs": {{"x": {nested(100_000)}}}'),
    "deep objects": body_of(
        rest=', "chat_template_kwargs": {"x": ' + nested(900, '{"a":', "}") + "}"
    ),
    "numbers": body_of(
        rest=', "chat_template_kwargs": {"x": [1e999, NaN, -0.0, 1' + "0" * 4000 + "]}"
    ),
    "names of Python": body_of(
        rest=', "chat_template_kwargs": {"__class__": 1, "self": 2, "x": {"__init__": 3}, "": 4}'
    ),
    "hidden globals": body_of(
        rest=', "chat_template_kwargs": {"range": 1, "raise_exception": 2, "bos_token": {}}'
    ),
    "a lone surrogate": body_of('"\\ud800"'),
    "a lone surrogate among arguments": body_of(rest=', "chat_template_kwargs": {"x": "\\udfff"}'),
    "deep parts": body_of(f'[{{"type": "text", "text": "Hello", "x": {nested(900)}}}]'),
    "deep calls": (
        '{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": '
        '"function", "function": {"name": "f", "arguments": "' + nested(100_000) + '"}}]}]}'
    ),
    "deep documents": body_of(rest=f', "documents": [{{"text": {nested(900)}}}]'),
}


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/chat/completions/render", "/tokenize"]
)
async def test_what_a_client_says_is_never_a_fault_of_the_server(serve, path):
    shows = "{{ messages | tojson }}{{ x | tojson }}{{ documents | tojson }}{{ self }}"
    served = await serve(chat_template=shows, enable_scale_out=True)
    for name, body in BODIES.items():
        headers = {"Content-Type": "application/json"}
        got = await served.get(path, "POST", data=body.encode(), headers=headers)
        assert got.status in (200, 400), (name, got)
