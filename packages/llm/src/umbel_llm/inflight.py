"""Which children run under which response id."""

from collections.abc import Iterable

from umbel_engine import Sample


class InFlight:
    """Finds the running children of a response, so that it can be aborted by its id."""

    def __init__(self) -> None:
        self._children: dict[str, dict[str, Sample[object]]] = {}

    def __len__(self) -> int:
        return len(self._children)

    def add(self, response_id: str, children: "Iterable[Sample[object]]") -> None:
        """Count children to a response; several fan-outs may belong to one."""
        entry = self._children.setdefault(response_id, {})
        entry.update((child.request_id, child) for child in children)

    def discard(self, response_id: str, request_id: str) -> None:
        """Forget a child that has ended; the response goes with its last child."""
        entry = self._children.get(response_id)
        if entry is not None and entry.pop(request_id, None) is not None and not entry:
            del self._children[response_id]

    def children(self, response_id: str) -> "list[Sample[object]]":
        """Give the running children of a response; empty when there is none of this id."""
        return list(self._children.get(response_id, {}).values())

    @property
    def response_ids(self) -> list[str]:
        """The ids of all running responses."""
        return list(self._children)
