"""Workers that lease from the task service, as all instances show them together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pyasynq._broker.operating.instance_reports import LEASE_WORKER_REPORTS, write_reports
from pyasynq._wire.keys import LEASE_WORKERS_KEY
from pyasynq.gateway.leases.bodies import WorkerDescription
from pyasynq.gateway.leases.worker_table import WorkerTable
from pyasynq.operations import LeaseWorkerReport, Operator, Thresholds, User
from pyasynq.operations import sync as blocking
from pyasynq.operations.lease_workers import encode_report
from tests.factories import NOW
from tests.fix_service import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.operations import LeaseWorker
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

WORKER = {"name": "resizer", "pid": 7, "version": "1.2", "language": "php 8.3", "host": "web-1"}


async def shown(
    operator: Operator, condition: Callable[[list[LeaseWorker]], object] = bool
) -> list[LeaseWorker]:
    """Return the workers as soon as a condition holds for them."""
    while not condition(workers := await operator.lease_workers()):  # noqa: ASYNC110 - what is looked at is in Redis
        await asyncio.sleep(0.02)
    return workers


@run_async
async def test_a_worker_is_shown_while_it_waits_works_and_goes(redis_url: str) -> None:
    """Leased through one instance, and settled through another."""
    async with serving(redis_url) as one, serving(redis_url) as two:
        operator = one.operator
        poll = asyncio.create_task(one.take("resize", worker=WORKER))
        [worker] = await shown(operator)
        assert WORKER == {name: getattr(worker, name) for name in WORKER}
        assert ("waiting", 1, 0, ("resize",)) == (
            *(worker.state, worker.parked, worker.at_work, worker.queues),
        )
        await two.ask("POST", "/v1/tasks", {"type": "resize"})
        task = await poll
        [worker] = await shown(operator, lambda workers: workers[0].at_work)
        assert ("working", 0, 1) == (worker.state, worker.parked, worker.at_work)
        seen = worker.seen
        await two.settle(task, "complete")
        [worker] = await shown(operator, lambda workers: not workers[0].at_work and workers[0].seen > seen)
        assert ("away", "resizer", "web-1") == (worker.state, worker.name, worker.host)


@run_async
async def test_workers_that_do_not_say_who_they_are_are_told_by_address(redis_url: str) -> None:
    """Two processes without a name are one worker."""
    async with serving(redis_url) as one:
        for _ in range(2):
            await one.ask("POST", "/v1/leases", {"queues": ["resize"], "wait": 0})
        [worker] = await shown(one.operator)
        assert ("", None, "127.0.0.1") == (worker.name, worker.pid, worker.host)


@run_async
async def test_an_instance_that_closes_has_no_waiting_workers(redis_url: str) -> None:
    """It reports a last time."""
    async with serving(redis_url) as other:
        async with serving(redis_url) as one:
            poll = asyncio.create_task(
                one.ask("POST", "/v1/leases", {"queues": ["resize"], "wait": 50, "worker": WORKER})
            )
            await shown(other.operator)
            one.service.end_waits()
            assert 204 == (await poll).status_code
        assert ["away"] == [worker.state for worker in await other.operator.lease_workers()]


def test_a_user_sees_the_workers_of_visible_queues(redis_url: str, perform: Perform) -> None:
    """Without the names of the others."""
    report = LeaseWorkerReport("w", key_id="k", queues=("mine", "theirs"), seen=float(NOW.seconds))
    other = LeaseWorkerReport("v", key_id="k", queues=("theirs",), seen=float(NOW.seconds))
    named = [(f"{one.id}.i", encode_report(one)) for one in (report, other)]
    perform(write_reports(LEASE_WORKER_REPORTS, named, None))
    user = User.with_role("mira", "viewer", queues=["mine"])
    with blocking.Operator(redis_url, user) as operator:
        assert [("w", ("mine",))] == [(one.id, one.queues) for one in operator.lease_workers()]


def test_reports_are_bounded_and_end(redis_client: RedisClient, perform: Perform) -> None:
    """A program that makes up workers fills neither Redis nor pages."""
    data = encode_report(LeaseWorkerReport("w", key_id="k", queues=("q",), seen=float(NOW.seconds)))
    reports = [(f"w{at}.i", data) for at in range(LEASE_WORKER_REPORTS.most + 3)]
    assert 3 == perform(write_reports(LEASE_WORKER_REPORTS, reports, NOW))
    assert 0 == perform(write_reports(LEASE_WORKER_REPORTS, reports[:10], NOW))
    assert LEASE_WORKER_REPORTS.most == redis_client.hlen(LEASE_WORKERS_KEY)
    assert 0 < redis_client.ttl(LEASE_WORKERS_KEY) <= 600


def test_what_is_not_a_report_is_left_out(redis_url: str, redis_client: RedisClient) -> None:
    """Redis may hold anything."""
    values: dict[str | bytes, Any] = {"a.i": "x", "b.i": "9999999999 {}", b"\xff": "9999999999 []", "c": ""}
    redis_client.hset(LEASE_WORKERS_KEY, mapping=values)
    with blocking.Operator(redis_url, User.with_role("root", "admin")) as operator:
        assert [] == operator.lease_workers()
    redis_client.delete(LEASE_WORKERS_KEY)


def test_a_table_forgets_who_asked_longest_ago() -> None:
    """And those who have asked for nothing for 10 minutes."""
    now = 1_000.0
    table = WorkerTable(clock=lambda: now, most=2)
    for name in "abc":
        with table.waiting("k", WorkerDescription(name=name), "h", ["q"]):
            pass
    assert ["b", "c"] == sorted(report.name for report in table.take_changed())
    assert [] == table.take_changed()
    now = 1_601.0
    assert [] == table.take_changed()
    assert not table._workers


@run_async
async def test_a_type_without_a_worker_is_found(redis_url: str) -> None:
    """By attention, although a worker has leased its tasks before."""
    async with serving(redis_url) as one:
        await one.ask("POST", "/v1/tasks", {"type": "resize"})
        task = await one.take("resize", worker=WORKER)
        await one.ask("POST", "/v1/tasks", {"type": "resize"})
        served = one.service._leases._served
        served._idle_seconds = 0
        await served.drop_idle()
        assert ["resize"] == list(served.names), "a worker has a task of it"
        await one.settle(task, "complete")
        await served.drop_idle()
        found = await one.operator.attention(Thresholds(unserved_after=0))
        assert ["no_consumers"] == [each.detector for each in found.findings if each.queue == "resize"]
        await one.settle(await one.take("resize"), "complete")
