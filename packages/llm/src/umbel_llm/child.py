"""One child of a fan-out on its way up: counted, then passed on."""

from typing import Generic, Protocol, TypeVar

from umbel_engine import EngineCoreOutput, Finish, FinishReason, Stage, Step
from umbel_llm.metrics import ChildStats

ItemT = TypeVar("ItemT")


class Parent(Protocol):
    """What is told of a child on its way."""

    def child_prefilled(self) -> None:
        """Note the child's first output, or its end when there was none; called once."""

    def child_ended(self, reason: FinishReason, num_generation_tokens: int) -> None:
        """Note that the child has ended for whatever reason; called once."""


class ChildStage(Generic[ItemT]):
    """The llm layer's part of a sample: statistics, and the tables at its end."""

    __slots__ = ("_end", "_feed", "_is_prefilling", "_parent", "_stats", "take")

    def __init__(self, stage: Stage[ItemT], stats: ChildStats, parent: Parent) -> None:
        self._stats = stats
        self._parent = parent
        self._is_prefilling = True
        # A stage may hand its calls on; bound here, they go straight to where they end.
        self._feed = stage.feed
        self._end = stage.end
        self.take = stage.take

    def feed(self, output: EngineCoreOutput, step: Step) -> Finish | None:
        """Count an output and pass it on; see `umbel_engine.Stage`."""
        if self._is_prefilling:
            self._is_prefilling = False
            self._parent.child_prefilled()
        self._stats.feed(output, step)
        finish = self._feed(output, step)
        if finish is not None:
            # The finish may be earlier than the engine's: a stop string counts as "stop".
            if output.error is None:
                self._stats.finish(finish.reason, step)
            else:
                self._stats.drop()
            self._parent.child_ended(finish.reason, self._stats.num_generation_tokens)
        return finish

    def end(self, finish: Finish) -> None:
        """End the child from this side; see `umbel_engine.Stage`."""
        if self._is_prefilling:
            self._is_prefilling = False
            self._parent.child_prefilled()
        self._stats.drop()
        self._parent.child_ended(finish.reason, self._stats.num_generation_tokens)
        self._end(finish)
