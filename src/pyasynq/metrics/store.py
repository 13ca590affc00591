"""Store of counters, gauges and histograms, which merges the metrics of several processes."""

from __future__ import annotations

import operator
import threading
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from pyasynq.metrics.families import FAMILIES, Family, MetricType
from pyasynq.metrics.text import NO_EXEMPLARS, Exemplar, Samples

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from pyasynq.supervisor import MetricRow

MAX_TYPES: Final = 200
MAX_QUEUES: Final = 1_000
OTHER: Final = "_other"
"""Label value under which all values beyond the limits are counted (cardinality limit)."""
_EXEMPLAR: Final = "exemplar"
_CAPPED: Final = "pyasynq_labels_capped_total"
_LONGEST_VALUE: Final = 200
"""Maximum number of characters of a label value; longer ones are counted under `_other`."""


class MetricStore:
    """Thread-safe store of the values of metrics, by name and labels.

    Counters and histograms only grow. Gauges belong to a source, such as a process. The gauges of all sources
    are merged: by maximum if the family is shared, else by sum. The gauges of a source are removed with it.

    Args:
        max_types: number of values of the label `type`; the others are counted under `_other`.
        max_queues: number of values of the label `queue`; the others are counted under `_other`.
    """

    def __init__(self, *, max_types: int = MAX_TYPES, max_queues: int = MAX_QUEUES) -> None:
        self._lock = threading.Lock()
        self._limits = {"type": max_types, "queue": max_queues}
        self._known: dict[str, set[str]] = {label: set() for label in self._limits}
        self._counters: dict[str, dict[tuple[str, ...], float]] = {}
        self._histograms: dict[str, dict[tuple[str, ...], list[float]]] = {}
        self._gauges: dict[str, dict[str, dict[tuple[str, ...], float]]] = {}
        """Gauges by source and name."""
        self._changes: dict[tuple[str, tuple[str, ...]], float | list[float]] = {}
        """Increments of counters and histograms since the last call of `take_rows`."""
        self._exemplars: dict[str, dict[tuple[str, ...], dict[int, Exemplar]]] = {}
        """Newest exemplar of each bucket, by name and labels of a histogram."""
        self._new_exemplars: dict[tuple[str, tuple[str, ...]], Exemplar] = {}
        """Newest exemplar of each histogram since the last call of `take_rows`."""

    def add(self, name: str, labels: Sequence[str] = (), amount: float = 1.0) -> None:
        """Add a number to a counter."""
        with self._lock:
            self._add(FAMILIES[name], labels, amount)

    def add_histogram(self, name: str, labels: Sequence[str], numbers: Sequence[float]) -> None:
        """Add the counts of all buckets, and the sum, to a histogram."""
        with self._lock:
            self._add_histogram(FAMILIES[name], labels, numbers)

    def observe(self, name: str, value: float, labels: Sequence[str] = ()) -> None:
        """Add one value to a histogram."""
        family = FAMILIES[name]
        place = bisect_left(family.bounds, value)
        with self._lock:
            for numbers in self._find_histogram(family, labels):
                numbers[place] += 1
                numbers[-1] += value

    def set_exemplar(self, name: str, labels: Sequence[str], exemplar: Exemplar) -> None:
        """Store an exemplar of a histogram; it replaces the earlier exemplar of the same bucket."""
        with self._lock:
            self._set_exemplar(FAMILIES[name], labels, exemplar)

    def set_gauges(self, name: str, values: Mapping[tuple[str, ...], float], source: str = "") -> None:
        """Set all values of a gauge of a source; label values that are not given become 0."""
        family = FAMILIES[name]
        with self._lock:
            kept = self._gauges.setdefault(source, {}).setdefault(name, {})
            for labels in kept:
                kept[labels] = 0
            for labels, value in values.items():
                capped = self._cap(family, labels)
                kept[capped] = kept.get(capped, 0) + value

    def take_rows(self) -> list[MetricRow]:
        """Return rows for `add_rows`: the changes since the last call, and all gauges. Reset the changes."""
        with self._lock:
            changes, self._changes = self._changes, {}
            exemplars, self._new_exemplars = self._new_exemplars, {}
            rows: list[MetricRow] = [
                (name, list(labels), amount) for (name, labels), amount in changes.items()
            ]
            rows += [(name, list(labels), {_EXEMPLAR: one}) for (name, labels), one in exemplars.items()]
            for gauges in self._gauges.values():
                for name, values in gauges.items():
                    rows += [(name, list(labels), value) for labels, value in values.items()]
        return rows

    def add_rows(self, source: str, rows: Iterable[MetricRow]) -> None:
        """Add rows from another process; rows of unknown metrics (another version) are ignored."""
        with self._lock:
            for name, labels, value in rows:
                family = FAMILIES.get(name)
                if family is None or len(labels) != len(family.labels):
                    continue
                if isinstance(value, dict):
                    if family.kind is MetricType.HISTOGRAM and _EXEMPLAR in value:
                        self._set_exemplar(family, labels, Exemplar(*value[_EXEMPLAR]))
                elif family.kind is MetricType.GAUGE and not isinstance(value, list):
                    gauges = self._gauges.setdefault(source, {}).setdefault(name, {})
                    gauges[self._cap(family, labels)] = value
                elif family.kind is MetricType.COUNTER and not isinstance(value, list):
                    self._add(family, labels, value)
                elif isinstance(value, list) and len(value) == len(family.bounds) + 2:
                    self._add_histogram(family, labels, value)

    def drop_source(self, source: str) -> None:
        """Forget the gauges of a process that has ended."""
        with self._lock:
            self._gauges.pop(source, None)

    def samples(self) -> list[Samples]:
        """Return all values, in the order of the table."""
        with self._lock:
            gauges: dict[str, dict[tuple[str, ...], float]] = {}
            for of_source in self._gauges.values():
                for name, values in of_source.items():
                    sums = gauges.setdefault(name, {})
                    add = max if FAMILIES[name].is_shared else operator.add
                    for labels, value in values.items():
                        sums[labels] = add(sums.get(labels, 0), value)
            found: dict[str, Mapping[tuple[str, ...], Any]] = {
                **gauges,
                **{name: dict(values) for name, values in self._counters.items()},
                **{
                    name: {labels: tuple(numbers) for labels, numbers in values.items()}
                    for name, values in self._histograms.items()
                },
            }
            exemplars = {
                name: {labels: dict(buckets) for labels, buckets in values.items()}
                for name, values in self._exemplars.items()
            }
        return [
            Samples(family, found[name], exemplars.get(name, NO_EXEMPLARS))
            for name, family in FAMILIES.items()
            if name in found
        ]

    def _add(self, family: Family, labels: Sequence[str], amount: float) -> None:
        values = self._counters.setdefault(family.name, {})
        key = self._cap(family, labels, values)
        values[key] = values.get(key, 0) + amount
        changed = self._changes.get((family.name, key), 0.0)
        assert not isinstance(changed, list)  # noqa: S101 - a name has one kind
        self._changes[family.name, key] = changed + amount

    def _add_histogram(self, family: Family, labels: Sequence[str], numbers: Sequence[float]) -> None:
        for kept in self._find_histogram(family, labels):
            for at, number in enumerate(numbers):
                kept[at] += number

    def _set_exemplar(self, family: Family, labels: Sequence[str], exemplar: Exemplar) -> None:
        key = self._cap(family, labels)
        buckets = self._exemplars.setdefault(family.name, {}).setdefault(key, {})
        buckets[bisect_left(family.bounds, exemplar.value)] = exemplar
        self._new_exemplars[family.name, key] = exemplar

    def _find_histogram(self, family: Family, labels: Sequence[str]) -> tuple[list[float], list[float]]:
        """Return two mutable lists of a histogram: its totals, and its increments since the last `take_rows`.

        Missing lists are made. A list has the count of each bucket, then the sum of the values.
        """
        values = self._histograms.setdefault(family.name, {})
        key = self._cap(family, labels, values)
        if key not in values:
            values[key] = [0] * (len(family.bounds) + 2)
        changed = self._changes.get((family.name, key))
        if not isinstance(changed, list):
            changed = self._changes[family.name, key] = [0] * (len(family.bounds) + 2)
        return values[key], changed

    def _cap(
        self, family: Family, labels: Sequence[str], known_labels: Container[tuple[str, ...]] = ()
    ) -> tuple[str, ...]:
        """Return label values, with `_other` for values beyond the limit of their label.

        Args:
            family: the family.
            labels: the label values.
            known_labels: tuples of label values that have passed this check before.
        """
        given = tuple(labels)
        if given in known_labels:
            return given
        capped = list(labels)
        for at, (name, value) in enumerate(zip(family.labels, labels, strict=True)):
            limit = self._limits.get(name)
            if limit is None or value in (known := self._known[name]) or value in ("", OTHER):
                continue
            if len(known) < limit and len(value) <= _LONGEST_VALUE:
                known.add(value)
            else:
                capped[at] = OTHER
                if family.name != _CAPPED:
                    self._add(FAMILIES[_CAPPED], (name,), 1)
        return tuple(capped)
