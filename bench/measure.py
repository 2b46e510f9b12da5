"""One frontend under one load, once."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from bench.frontends import Running
from bench.generator import Answer, Connection, connect, request_of, send
from bench.loads import Load
from bench.processes import MIB

LOOK_EVERY = 0.2
"""Seconds between two looks at a frontend's memory."""

WARM_UP_TOKENS = 8

OTHERS_TOKENS = 4000
"""The length of the streams beside a load; it ends before they do."""


class Measured(NamedTuple):
    """What a frontend did and used in one round; a time is in seconds.

    `cpu_us` is per output token, `cpu_us_per_request` per request as the load has them, so for one
    with all of its samples.  `gap` is from one arrival of a stream to the next, `others_gap` the
    same of the streams that ran beside the load.
    """

    cpu_us: float
    cpu_us_per_request: float
    tokens_per_second: float
    requests_per_second: float
    first_mean: float
    first_p99: float
    gap_mean: float
    gap_p99: float
    others_gap_max: float
    peak_mib: float


async def measure(running: Running, load: Load) -> Measured:
    """Put a frontend under a load; raises RuntimeError when it does not do all of it."""
    sent = load if running.frontend.many else load.as_singles()
    bodies = sent.bodies(running.model)
    warm_up = sent._replace(max_tokens=WARM_UP_TOKENS).bodies(running.model)[: sent.at_once]
    await send(running.port, warm_up, sent.at_once)
    async with besides(running, load) as others, watched(running) as peak:
        cpu, began = running.server.cpu_seconds(), time.perf_counter()
        answers = await send(running.port, bodies, sent.at_once)
        seconds = time.perf_counter() - began
        cpu = running.server.cpu_seconds() - cpu
    tokens = sum(answer.tokens for answer in answers)
    expected = load.requests * load.n * load.max_tokens
    if tokens != expected:
        raise RuntimeError(f"{running.frontend.name} gave {tokens} tokens, not {expected}")
    gaps_of_others = [gap for connection in others for gap in connection.gaps]
    return _summary(load, answers, seconds, cpu, gaps_of_others, max(peak))


@asynccontextmanager
async def besides(running: Running, load: Load) -> AsyncIterator[list[Connection]]:
    """Keep streams running beside a load; gives their connections."""
    body = load.other_body(running.model, OTHERS_TOKENS)
    connections = [await connect(running.port) for _ in range(load.others)]
    asked = [connection.ask(request_of(body)) for connection in connections]
    try:
        while not all(connection.gaps for connection in connections):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_EVERY)
        for connection in connections:
            connection.gaps.clear()
        yield connections
    finally:
        for connection, answer in zip(connections, asked, strict=True):
            answer.cancel()
            connection.transport.close()


@asynccontextmanager
async def watched(running: Running) -> AsyncIterator[list[int]]:
    """Look at a frontend's memory from time to time; gives what was seen, in bytes."""
    seen = [running.server.resident_bytes()]

    async def watch() -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            seen.append(running.server.resident_bytes())

    watcher = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watcher.cancel()


def _summary(
    load: Load,
    answers: list[Answer],
    seconds: float,
    cpu: float,
    gaps_of_others: list[float],
    peak_bytes: int,
) -> Measured:
    tokens = sum(answer.tokens for answer in answers)
    firsts = sorted(answer.first for answer in answers)
    gaps = sorted(gap for answer in answers for gap in answer.gaps)
    return Measured(
        cpu_us=cpu / tokens * 1e6,
        cpu_us_per_request=cpu / load.requests * 1e6,
        tokens_per_second=tokens / seconds,
        requests_per_second=load.requests / seconds,
        first_mean=statistics.fmean(firsts),
        first_p99=_p99(firsts),
        gap_mean=statistics.fmean(gaps) if gaps else 0.0,
        gap_p99=_p99(gaps),
        others_gap_max=max(gaps_of_others, default=0.0),
        peak_mib=peak_bytes / MIB,
    )


def _p99(values: Sequence[float]) -> float:
    """Give the 99th percentile of values in order, 0 of none."""
    return values[min(len(values) - 1, len(values) * 99 // 100)] if values else 0.0
