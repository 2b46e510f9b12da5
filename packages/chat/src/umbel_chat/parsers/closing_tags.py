"""Tags that close a value, told from the same tags in a value that speaks of them."""

from collections.abc import Mapping

from umbel_chat.parsers.source import Emit, Source, Steps


def read_value(
    source: Source,
    emit: Emit,
    ends: tuple[str, ...],
    followers: Mapping[str, tuple[str, ...]],
) -> Steps[str | None]:
    """Read a value up to the tag that ends it, and past that; gives it, None at the end.

    A tag that `followers` names ends the value only where one of the tags that it gives comes next,
    or nothing; else it is part of it.
    """
    while True:
        found = yield from source.until(ends, emit)
        if found is None or found not in followers:
            return found
        if (yield from source.precedes(*followers[found])):
            return found
        emit(found)
