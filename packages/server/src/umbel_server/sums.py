"""Metrics of several server processes, added up."""

from collections.abc import Iterator, Sequence

import msgspec
from prometheus_client import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample


class Collected(Collector):
    """Metric families as they were at one moment."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Give them."""
        yield from self._families


class SentFamily(msgspec.Struct, array_like=True):
    """A metric family on the line; a sample is its name, its labels and its value."""

    name: str
    documentation: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]


def encoded(families: list[Metric]) -> bytes:
    """Write metric families for another process."""
    return msgspec.msgpack.encode(
        [
            SentFamily(
                family.name,
                family.documentation,
                family.type,
                [(sample.name, sample.labels, sample.value) for sample in family.samples],
            )
            for family in families
        ]
    )


def families_of(content: bytes) -> list[Metric]:
    """Read metric families of another process."""
    found = []
    for sent in msgspec.msgpack.decode(content, type=list[SentFamily]):
        family = Metric(sent.name, sent.documentation, sent.type)
        family.samples = [Sample(*sample) for sample in sent.samples]
        found.append(family)
    return found


def added_up(own: list[Metric], others: list[list[Metric]]) -> list[Metric]:
    """Add the metrics of several processes up.

    Gauges are the state of the engines, which every process knows; the time at which a series
    began is that of the first.
    """
    result = {family.name: family for family in own}
    for families in others:
        for family in families:
            if family.name not in result:
                result[family.name] = family
            elif family.type != "gauge":
                result[family.name] = _sum(result[family.name], family)
    return list(result.values())


def _sum(one: Metric, two: Metric) -> Metric:
    values = {_key(sample): sample for sample in one.samples}
    for sample in two.samples:
        key = _key(sample)
        if key not in values:
            values[key] = sample
        elif sample.name.endswith("_created"):
            values[key] = min(values[key], sample, key=lambda item: item.value)
        else:
            total = values[key].value + sample.value
            values[key] = sample._replace(value=total)
    family = Metric(one.name, one.documentation, one.type)
    family.samples = list(values.values())
    return family


def _key(sample: Sample) -> tuple[str, tuple[tuple[str, str], ...]]:
    return sample.name, tuple(sorted(sample.labels.items()))
