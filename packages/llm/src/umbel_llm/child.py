"""One child of a fan-out on its way up: counted, then passed on."""

from collections.abc import Callable
from typing import Generic, TypeVar

from umbel_engine import EngineCoreOutput, Finish, Stage, Step
from umbel_llm.metrics import ChildStats

ItemT = TypeVar("ItemT")


class ChildStage(Generic[ItemT]):
    """The llm layer's part of a sample: statistics, and the tables at its end.

    `on_end` is called once, when the child has ended for whatever reason.
    """

    __slots__ = ("_end", "_feed", "_on_end", "_stats", "take")

    def __init__(self, stage: Stage[ItemT], stats: ChildStats, on_end: Callable[[], None]) -> None:
        self._stats = stats
        self._on_end = on_end
        # A stage may hand its calls on; bound here, they go straight to where they end.
        self._feed = stage.feed
        self._end = stage.end
        self.take = stage.take

    def feed(self, output: EngineCoreOutput, step: Step) -> Finish | None:
        """Count an output and pass it on; see `umbel_engine.Stage`."""
        self._stats.feed(output, step)
        finish = self._feed(output, step)
        if finish is not None:
            # The finish may be earlier than the engine's: a stop string counts as "stop".
            if output.error is None:
                self._stats.finish(finish.reason, step)
            else:
                self._stats.drop()
            self._on_end()
        return finish

    def end(self, finish: Finish) -> None:
        """End the child from this side; see `umbel_engine.Stage`."""
        self._stats.drop()
        self._on_end()
        self._end(finish)
