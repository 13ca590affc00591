"""The metrics of Asynq's collector and ours on one database, value by value."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from pyasynq import sync
from pyasynq.config import ServerConfig
from pyasynq.metrics import QueueMetrics
from pyasynq.metrics.families import FAMILIES, Origin
from pyasynq.server import Server
from pyasynq.task import Task
from tests.interop.collector_program import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from prometheus_client.core import Metric

LATENCY = "asynq_queue_latency_seconds"
ASYNQ = {name for name, family in FAMILIES.items() if family.origin is Origin.ASYNQ}


class Exposition(NamedTuple):
    """Asynq's families: their types and help texts, and the values of all samples."""

    families: dict[str, tuple[str, str]]
    values: dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(families: Iterable[Metric]) -> Exposition:
    """Return the part of an exposition that is Asynq's."""
    found = [one for one in families if one.name.startswith("asynq_")]
    samples = [sample for one in found for sample in one.samples]
    return Exposition(
        {one.name: (one.type, one.documentation) for one in found},
        {(one.name, frozenset(one.labels.items())): one.value for one in samples},
    )


@pytest.fixture
def busy_url(redis_url: str) -> str:
    """The URL of a database with tasks in all states, history, failures and a paused queue."""

    async def work(task: Task) -> None:
        if task.payload == b"fail":
            raise ValueError("no")

    async def run() -> None:
        config = ServerConfig(queues={"mail": 1, "bulk": 1}, burst=True)
        await Server(redis_url, config).run(work, signals=False)

    with sync.Client(redis_url) as client, sync.Inspector(redis_url) as inspector:
        for number in range(30):
            payload, keeps = (b"fail" if number % 3 == 0 else b"x"), (60 if number % 2 else 0)
            client.enqueue(Task("t", payload, queue="mail", retention=keeps, max_retry=number % 2))
        client.enqueue_many([Task("t", queue="bulk") for _ in range(7)])
        asyncio.run(run())
        client.enqueue_many([Task("t", b"x" * 300, queue="mail") for _ in range(12)])
        client.enqueue_many([Task("t", queue="bulk", process_in=3_600) for _ in range(4)])
        client.enqueue(Task("t", queue="bulk", group="g"))
        client.enqueue(Task("t", queue='odd "name" \\ \N{SNOWMAN}'))
        inspector.pause_queue("bulk")
    return redis_url


def scrape_ours(url: str, accept: str) -> str:
    """Return our exposition."""

    async def scrape() -> str:
        async with QueueMetrics(url) as metrics:
            return (await metrics.render(accept))[1].decode()

    return asyncio.run(scrape())


@pytest.mark.parametrize(
    ("accept", "parse"),
    [("text/plain", parse_plain), ("application/openmetrics-text; version=1.0.0", parse_open)],
)
def test_both_say_the_same_for_asynqs_seven_families(
    busy_url: str, collector: Path, accept: str, parse: Callable[[str], Any]
) -> None:
    """Names, types, help texts, labels and values; the latency goes on growing between the scrapes.

    Asynq's collector knows only the text format of Prometheus, and ours is read in both.
    """
    with Collector(collector, busy_url) as theirs:
        before = read(parse_plain(theirs.scrape()))
        ours = read(parse(scrape_ours(busy_url, accept)))
        after = read(parse_plain(theirs.scrape()))

    assert before.families == ours.families
    assert len(ASYNQ) == len(ours.families) == 7
    assert before.values.keys() == ours.values.keys()
    assert any(value for (name, _), value in ours.values.items() if name == "asynq_tasks_failed_total")
    for (name, labels), value in ours.values.items():
        if name == LATENCY:
            assert before.values[name, labels] <= value <= after.values[name, labels] or value == 0
        else:
            assert before.values[name, labels] == value, (name, labels)
