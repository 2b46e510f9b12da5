"""What the server processes that share engines know and do together."""

import asyncio

import msgspec
from prometheus_client import Metric

from umbel_engine import Addresses, EngineCoreOutputs, SchedulerStats, Step
from umbel_server.line import SUPERVISOR, Abort, Line, Listening, Serving, Statistics
from umbel_server.server import Server
from umbel_server.sums import encoded, families_of

PASSED_ON_EVERY = 0.1
"""Seconds between two messages about an engine's scheduler; the last state is the one that counts."""


class ServerProcesses:
    """What a process shares with the others.

    An engine tells the state of its scheduler to one process only, and an abort by id may reach
    any, so both are passed on; metrics and load are added up.
    """

    def __init__(self, address: str, index: int, count: int) -> None:
        self._line = Line(address, index, count, self._on_message, self._part_of)
        self._server: Server | None = None
        self._latest: dict[int, SchedulerStats] = {}

    def listening(self, addresses: Addresses) -> None:
        """Tell the supervisor where engines find this process."""
        self._line.tell(Listening(addresses), SUPERVISOR)

    def serving(self) -> None:
        """Tell the supervisor that connections are accepted."""
        self._line.tell(Serving(), SUPERVISOR)

    def join(self, server: Server) -> None:
        """Take part with a server whose engines are ready."""
        self._server = server
        server.other_processes = self
        client, metrics = server.chat.text.llm.client, server.chat.text.llm.metrics

        def listen(outputs: EngineCoreOutputs, step: Step) -> None:
            metrics.on_step(outputs, step)
            if outputs.scheduler_stats is not None:
                self._pass_on(step.engine_index, outputs.scheduler_stats)

        client.step_listener = listen

    def _pass_on(self, engine_index: int, stats: SchedulerStats) -> None:
        if engine_index not in self._latest:
            asyncio.get_running_loop().call_later(PASSED_ON_EVERY, self._tell, engine_index)
        self._latest[engine_index] = stats

    def _tell(self, engine_index: int) -> None:
        self._line.tell(Statistics(engine_index, self._latest.pop(engine_index)))

    def abort(self, response_ids: list[str]) -> None:
        """Abort responses that the others may have."""
        self._line.tell(Abort(response_ids))

    async def metrics(self) -> list[list[Metric]]:
        """Give the metrics of the others."""
        return [families_of(content) for content in await self._line.ask("metrics")]

    async def load(self) -> int:
        """Give how many requests the others are answering."""
        answers = await self._line.ask("load")
        return sum(msgspec.msgpack.decode(content, type=int) for content in answers)

    def close(self) -> None:
        """Take part no more."""
        self._line.close()

    def _on_message(self, message: Statistics | Abort) -> None:
        if self._server is None:
            return
        llm = self._server.chat.text.llm
        match message:
            case Statistics(engine_index, stats):
                llm.update_stats(engine_index, stats)
            case Abort(response_ids):
                llm.abort(response_ids)

    def _part_of(self, subject: str) -> bytes:
        if self._server is None:
            return msgspec.msgpack.encode([] if subject == "metrics" else 0)
        if subject == "load":
            return msgspec.msgpack.encode(self._server.load)
        return encoded(list(self._server.registry.collect()))
