"""Whatever happens to requests, in whatever order: nothing is left of them, and nothing ends twice."""

import asyncio
import json
import logging
from collections import deque

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from umbel_engine.mock import MockStep
from umbel_engine.wire import EngineCoreOutput, RequestFault
from umbel_server import watch
from umbel_server.server import SERVER

from .conftest import WORDS, RawClient, parse_events, serving

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
TIMEOUT = 10
WORD = {"t": "hi", "w": " London", "s": " Paris", "f": "yo"}
SAID = {"t": "hi", "w": " London", "s": " ", "f": "yo", "e": ""}
"""What a step brings, and what a client sees of it: "Paris" is a stop string."""

WATCHED_EVERY = 0.02
"""Seconds; an eighth of the time after which a client that does not read is cut off."""


class Plan:
    """The steps of one engine request; there may be more of them later."""

    def __init__(self, request):
        self.request = request
        self.steps = deque()
        self.said = ""
        self.ended = False

    def __iter__(self):
        return self

    def __next__(self):
        if not self.steps:
            raise StopIteration
        return self.steps.popleft()


class Asked:
    """A request of a client: what the engine got of it, and what it answered."""

    def __init__(self, client, response_id, stream, size):
        self.client = client
        self.response_id = response_id
        self.stream = stream
        self.size = size
        self.plans = []
        self.failed = False
        self.aborted = False
        self.gone = False

    @property
    def running(self):
        return [plan for plan in self.plans if not plan.ended]

    @property
    def is_over(self):
        return self.failed or not self.running


class Lifecycles(RuleBasedStateMachine):
    """A server, its engine, and clients that do as they like."""

    folder = None

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: self.problems.append(context))
        self.problems = []
        self.asked = []
        self.plans = {}
        self.ids = 0

    def do(self, work):
        return self.loop.run_until_complete(asyncio.wait_for(work, 3 * TIMEOUT))

    @initialize(handler_cancellation=st.booleans())
    def start(self, handler_cancellation):
        self.context = serving(
            self.folder,
            self._plan,
            handler_cancellation=handler_cancellation,
            engine_options={"paused": True},
            development_mode=True,
            client_write_timeout=8 * WATCHED_EVERY,
        )
        self.served = self.do(self.context.__aenter__())
        self.idle = self.do(self._running())

    def _plan(self, request):
        plan = self.plans[request.request_id] = Plan(request)
        return plan

    async def _running(self):
        """What the server counts, by a connection that is closed again."""
        client = await RawClient.connect(self.served.port)
        request = "GET /server_info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        await asyncio.get_running_loop().sock_sendall(client.socket, request.encode())
        answer = await client.rest()
        client.close()
        return json.loads(answer.partition(b"\r\n\r\n")[2])["umbel"]["running"]

    async def _settle(self):
        """Wait until engine and server have seen all that was sent so far."""
        for _ in range(2):
            await self.served.client.call("is_sleeping")
        for asked in self.asked:
            if asked.gone or asked.is_over:
                await self._until(lambda asked=asked: self._is_forgotten(asked))

    def _is_forgotten(self, asked):
        return asked.response_id not in self.served.llm.in_flight.response_ids

    async def _until(self, condition):
        async with asyncio.timeout(TIMEOUT):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    # What clients do.

    @rule(
        path=st.sampled_from([CHAT, COMPLETIONS]),
        n=st.integers(1, 16),
        prompts=st.integers(1, 3),
        stream=st.booleans(),
    )
    def ask(self, path, n, prompts, stream):
        self.do(self._ask(path, n, 1 if path == CHAT else prompts, stream))

    async def _ask(self, path, n, prompts, stream):
        self.ids += 1
        prefix = "chatcmpl" if path == CHAT else "cmpl"
        prompt = (
            {"messages": [{"role": "user", "content": "Hello"}]}
            if path == CHAT
            else {"prompt": ["Hello"] * prompts}
        )
        client = await RawClient.connect(self.served.port)
        asked = Asked(client, f"{prefix}-r{self.ids}", stream, n * prompts)
        await client.post(
            path, n=n, stream=stream, request_id=f"r{self.ids}", stop=["Paris"], **prompt
        )
        before = len(self.served.engine.adds)
        adds = await self.served.engine.wait_adds(before + asked.size)
        asked.plans = [self.plans[add.request_id] for add in adds[before:]]
        self.asked.append(asked)

    def _some(self, data, which):
        return data.draw(st.sampled_from([asked for asked in self.asked if which(asked)]))

    def _any_running(self):
        return any(asked.running and not asked.gone for asked in self.asked)

    @precondition(lambda self: self._any_running())
    @rule(data=st.data())
    def hang_up(self, data):
        asked = self._some(data, lambda asked: asked.running and not asked.gone)
        asked.gone = True
        self._expect_abort(asked, lambda: asked.client.close())

    @precondition(lambda self: self._any_running())
    @rule(data=st.data())
    def abort_by_id(self, data):
        asked = self._some(data, lambda asked: asked.running and not asked.gone)
        asked.aborted = True
        self._expect_abort(asked, lambda: self.served.llm.abort([asked.response_id]))

    def _expect_abort(self, asked, cause):
        """One message ends exactly the samples that have not ended."""
        running = [plan.request.request_id for plan in asked.running]
        before = len(self.served.engine.aborts)
        cause()
        self.do(self.served.engine.wait_aborts(before + 1))
        self.do(self._settle())
        assert self.served.engine.aborts[before:] == [running]
        for plan in asked.running:
            plan.ended = True

    # What the engine does.

    @precondition(lambda self: self._any_running())
    @rule(data=st.data(), kinds=st.lists(st.sampled_from("twsfe"), min_size=1, max_size=6))
    def step(self, data, kinds):
        """Let one step bring something to several samples: tokens, a stop string, an end, an error."""
        plans = {}
        for kind in kinds:
            asked = self._some(data, lambda asked: asked.running and not asked.gone)
            plan = data.draw(st.sampled_from(asked.running))
            plans.setdefault(plan.request.request_id, (asked, plan, kind))
        before = len(self.served.engine.aborts)
        expected = set()
        for _, plan, kind in plans.values():
            plan.steps.append(self._step_of(kind))
        self.do(self.served.engine.step())
        # An error ends its request, and siblings that say something in the same step end with it.
        for asked, _, kind in plans.values():
            asked.failed = asked.failed or kind == "e"
        for _, plan, kind in plans.values():
            plan.said += SAID[kind]
            if kind in "fe":
                plan.ended = True
            elif kind == "s":
                plan.ended = True
                expected.add(plan.request.request_id)
        for asked, _, _ in plans.values():
            if asked.failed:
                expected |= {plan.request.request_id for plan in asked.running}
                for plan in asked.running:
                    plan.ended = True
        self.do(
            self._until(lambda: sum(map(len, self.served.engine.aborts[before:])) >= len(expected))
        )
        self.do(self._settle())
        aborted = [name for message in self.served.engine.aborts[before:] for name in message]
        assert sorted(aborted) == sorted(expected)

    def _step_of(self, kind):
        if kind == "e":
            return MockStep(error=RequestFault("it broke"))
        word = WORD[kind]
        return MockStep(token_ids=[WORDS[word]], finish="length" if kind == "f" else None)

    @precondition(lambda self: any(asked.plans for asked in self.asked))
    @rule(data=st.data())
    def say_something_late(self, data):
        """Bring something for a sample that has ended, or end it twice."""
        ended = [plan for asked in self.asked for plan in asked.plans if plan.ended]
        if ended:
            plan = data.draw(st.sampled_from(ended))
            before = len(self.served.engine.aborts)
            self.served.engine.send_outputs(
                EngineCoreOutput(plan.request.request_id, [WORDS["hi"]], finish_reason=0)
            )
            self.do(self._settle())
            assert len(self.served.engine.aborts) == before

    # What must hold.

    @invariant()
    def nothing_ends_twice(self):
        if not hasattr(self, "served"):
            return
        aborted = [name for message in self.served.engine.aborts for name in message]
        assert len(aborted) == len(set(aborted))
        running = {plan.request.request_id for asked in self.asked for plan in asked.running}
        assert set(self.served.client._receivers) == running
        assert self.served.llm.admission.unfinished == len(running)

    def teardown(self):
        try:
            if hasattr(self, "served"):
                self.do(self._finish())
        finally:
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            if pending:
                self.loop.run_until_complete(asyncio.wait(pending))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
        assert self.problems == []

    async def _finish(self):
        # As when the server is told to end: what runs is aborted, and answered.
        for asked in self.asked:
            if asked.running and not asked.gone:
                asked.aborted = True
                for plan in asked.running:
                    plan.ended = True
        await self.served.app[SERVER].drain(0)
        try:
            await self._check_what_is_left()
        finally:
            await self.context.__aexit__(None, None, None)

    async def _check_what_is_left(self):
        for asked in self.asked:
            if not asked.gone:
                await self._check_answer(asked)
            asked.client.close()
        await self._settle()
        await self._until(lambda: self.served.load == 0)
        await asyncio.sleep(2 * WATCHED_EVERY)
        await self._until(lambda: not len(self.served.app[SERVER].slow_clients))
        assert await self._running() == self.idle

    async def _check_answer(self, asked):
        """The client has exactly what its samples said, each with one end."""
        if asked.stream and not asked.client.received and asked.failed:
            await asked.client.until(b"\r\n\r\n")
        if asked.stream:
            await self._check_stream(asked)
            return
        text = await asked.client.until(b"\r\n\r\n")
        head, _, body = text.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        while len(body) < length:
            body += await asyncio.get_running_loop().sock_recv(asked.client.socket, 65536)
        answer = json.loads(body)
        if asked.failed:
            assert head.startswith(b"HTTP/1.1 500")
            assert answer["error"]["message"] == "it broke"
            return
        choices = answer["choices"]
        assert [choice["index"] for choice in choices] == list(range(asked.size))
        for choice, plan in zip(choices, asked.plans, strict=True):
            said = choice["text"] if "text" in choice else choice["message"]["content"]
            assert (said or "") == plan.said

    async def _check_stream(self, asked):
        text = await asked.client.until(b"\r\n\r\n")
        if b"200 OK" not in text.partition(b"\r\n")[0]:
            assert asked.failed
            return
        await asked.client.until(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        *events, done = parse_events(asked.client.text)
        assert done == "[DONE]"
        assert any("error" in event for event in events) == asked.failed
        said = dict.fromkeys(range(asked.size), "")
        ends = dict.fromkeys(range(asked.size), 0)
        for event in events:
            for choice in event.get("choices", ()):
                content = choice["text"] if "text" in choice else choice["delta"].get("content")
                said[choice["index"]] += content or ""
                ends[choice["index"]] += choice["finish_reason"] is not None
        if not asked.failed:
            assert list(said.values()) == [plan.said for plan in asked.plans]
            assert set(ends.values()) == {1}


@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
def test_any_interleaving_of_what_can_happen_leaves_nothing_behind(
    model_folder, caplog, monkeypatch
):
    caplog.set_level(logging.CRITICAL)
    # Where handlers are not cancelled, a client that went is looked for now and then.
    monkeypatch.setattr(watch, "LOOK_EVERY", 0.01)

    class OfThisModel(Lifecycles):
        folder = model_folder

    run_state_machine_as_test(
        OfThisModel,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
