"""Which fan-outs run under which response id."""

from typing import Any

from umbel_engine import OpenFanout


class InFlight:
    """Finds the running fan-outs of a response, so that it can be aborted by its id."""

    def __init__(self) -> None:
        self._fanouts: dict[str, list[OpenFanout[Any]]] = {}

    def __len__(self) -> int:
        return len(self._fanouts)

    def add(self, response_id: str, fanout: OpenFanout[Any]) -> None:
        """Count a fan-out to a response; several may belong to one."""
        self._fanouts.setdefault(response_id, []).append(fanout)

    def discard(self, response_id: str, fanout: OpenFanout[Any]) -> None:
        """Forget a fan-out; the response goes with its last one."""
        fanouts = self._fanouts[response_id]
        fanouts.remove(fanout)
        if not fanouts:
            del self._fanouts[response_id]

    def fanouts(self, response_id: str) -> list[OpenFanout[Any]]:
        """Give the fan-outs of a response; empty when there is none of this id."""
        return list(self._fanouts.get(response_id, ()))

    @property
    def response_ids(self) -> list[str]:
        """The ids of all running responses."""
        return list(self._fanouts)
