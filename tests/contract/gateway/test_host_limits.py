"""Limits of a host that tasks of the kind `http` call, over two instances: rate, concurrency, throttling."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from pyasynq._wire.keys import host_gate_key, host_slots_scope, semaphore_key
from pyasynq.gateway.hosted.outcome import WAITS_SINCE_HEADER
from pyasynq.operations import HostGate
from pyasynq.task import TaskState
from tests.contract.gateway.test_hosted_http import Host, delivering, enqueue, hosting, wait_until
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.gateway.hosted.admission import HostAdmission
    from tests.fix_service import Visitor
    from tests.invariants import RedisClient

pytestmark = pytest.mark.usefixtures("redis_client")

CLOCKS = 0.005
"""Seconds by which the clock of Redis and that of this process may differ on one machine."""


def admissions(visitor: Visitor) -> list[HostAdmission]:
    """Return the admissions of an instance: one for each host that it calls."""
    assert visitor.service._hosted is not None
    found = [lane._admission for lane in visitor.service._hosted._lanes.values()]
    return [one for one in found if one is not None]


def show_throttled(visitor: Visitor) -> dict[str, bool]:
    """Return what the metrics of an instance say of its hosts."""
    visitor.service.measure()
    told = visitor.service.metrics.render()[1].decode()
    return {
        host: value == "1"
        for host, value in re.findall(r'pyasynq_service_host_throttled\{host="([^"]+)"\} (\d)', told)
    }


async def until(condition: Callable[[], object]) -> None:
    """Return when a condition is true."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.01)


async def is_paused(visitor: Visitor, seconds: float = 0) -> None:
    """Return when an instance leaves its host alone for longer than some seconds."""
    now = asyncio.get_running_loop().time
    await until(lambda: any(one.find_pause(now()) > seconds for one in admissions(visitor)))


def note_arrivals(host: Host) -> list[float]:
    """Return a list of the times at which requests are going to arrive."""
    arrivals: list[float] = []

    def answer(_: web.Request) -> web.Response:
        arrivals.append(time.time())
        return web.Response()

    host.answer = answer
    return arrivals


@run_async
async def test_a_rate_holds_over_two_instances(redis_url: str) -> None:
    """No request comes earlier than the burst and the rate allow; all tasks end, and none spends a retry."""
    rule = {"rate": "20/s+2"}
    async with (
        hosting() as host,
        delivering(redis_url, host, rule) as one,
        delivering(redis_url, host, rule),
    ):
        arrivals = note_arrivals(host)
        begin = time.time()
        for number in range(14):
            await enqueue(one, str(number))
        ends = [await wait_until(one, TaskState.COMPLETED, str(number)) for number in range(14)]
    assert [0] * 14 == [end.retried for end in ends]
    assert 14 == len(arrivals)
    for place, arrival in enumerate(sorted(arrivals)):
        assert arrival - begin >= (place + 1 - 2) / 20 - CLOCKS


@run_async
async def test_an_instance_knows_the_requests_of_another(redis_url: str) -> None:
    """It finds the bucket as the other one, which has ended, left it."""
    rule = {"rate": "4/s+3"}
    async with hosting() as host:
        arrivals = note_arrivals(host)
        async with delivering(redis_url, host, rule) as visitor:
            begin = time.time()
            for name in "abc":
                await enqueue(visitor, name)
            for name in "abc":
                await wait_until(visitor, TaskState.COMPLETED, name)
        async with delivering(redis_url, host, rule) as visitor:
            for name in "de":
                await enqueue(visitor, name)
            for name in "de":
                await wait_until(visitor, TaskState.COMPLETED, name)
    assert 5 == len(arrivals)
    assert arrivals[3] - begin >= 1 / 4 - CLOCKS
    assert arrivals[4] - begin >= 2 / 4 - CLOCKS


@run_async
async def test_what_a_rate_refuses_goes_back_in_its_order(redis_url: str) -> None:
    """The bucket was emptied meanwhile: the tasks wait in their queue as if they had not been leased."""
    rule = {"rate": "1/h+5"}
    async with hosting() as host, delivering(redis_url, host, rule) as visitor:
        await enqueue(visitor, "first")
        await wait_until(visitor, TaskState.COMPLETED, "first")
        gate = HostGate(visitor.operator, f"127.0.0.1:{host.port}", rate=admissions(visitor)[0]._gate.rate)
        assert 4 == (await gate.enter([f"other:{number}" for number in range(9)])).admitted
        names = ["a", "b", "c", "d", "e"]
        await visitor.operator.pause_queue("deliver")
        for name in names:
            await enqueue(visitor, name)
        await visitor.operator.resume_queue("deliver")
        await is_paused(visitor, 60)
        tasks = [await wait_until(visitor, TaskState.PENDING, name) for name in names]
        page = await visitor.operator.tasks("deliver", TaskState.PENDING)
        assert names == [task.id for task in page]
        assert [0] * 5 == [task.retried for task in tasks]
        assert 1 == len(host.requests)


@run_async
async def test_one_answer_throttles_the_host_for_all_instances(redis_url: str) -> None:
    """Tasks that another instance leases meanwhile are put off without a request and without a retry."""
    async with hosting() as host, delivering(redis_url, host) as one, delivering(redis_url, host) as two:
        host.answer = lambda _: web.Response(status=429, headers={"Retry-After": "600"})
        await enqueue(one, "a")
        first = await wait_until(one, TaskState.RETRY, "a")
        # The instance that has called the host leaves its tasks in their queue.
        await enqueue(one, "b")
        second = await wait_until(one, TaskState.RETRY, "b")
        await is_paused(one)
        await is_paused(two)
        name = f"127.0.0.1:{host.port}"
        assert [{name: True}] * 2 == [show_throttled(visitor) for visitor in (one, two)]
        await enqueue(one, "c")
        assert TaskState.PENDING is (await one.operator.task("deliver", "c")).state
    assert 1 == len(host.requests)
    assert (0, 0) == (first.retried, second.retried)
    assert "429" in first.last_error
    assert f"the host 127.0.0.1:{host.port} has asked to be left alone" == second.last_error
    for task in (first, second):
        assert task.next_process_at is not None
        left = task.next_process_at.timestamp() - time.time()
        # A tenth at most is added as jitter; due times are whole seconds, rounded up.
        assert 500 < left <= 661


@run_async
async def test_all_tasks_end_after_a_throttling(redis_url: str) -> None:
    """No request comes before the moment that the host has named, and no retry is spent."""
    answered: list[float] = []
    arrivals: list[float] = []

    def answer(_: web.Request) -> web.Response:
        if not answered:
            answered.append(time.time())
            return web.Response(status=429, headers={"Retry-After": "1"})
        arrivals.append(time.time())
        return web.Response()

    async with hosting() as host, delivering(redis_url, host) as one, delivering(redis_url, host):
        host.answer = answer
        await enqueue(one, "a")
        await wait_until(one, TaskState.RETRY, "a")
        for number in range(10):
            await enqueue(one, str(number))
        ends = [await wait_until(one, TaskState.COMPLETED, name) for name in ("a", *map(str, range(10)))]
    assert [0] * 11 == [end.retried for end in ends]
    assert 11 == len(arrivals)
    assert min(arrivals) >= answered[0] + 1 - CLOCKS


@pytest.mark.parametrize(("step", "enough"), [(3_600.0, 1), (0.02, 8)])
@run_async
async def test_a_host_is_called_by_and_by_after_a_throttling(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, step: float, enough: int
) -> None:
    """One attempt at once at first, and more with each step, also while none of them ends."""
    monkeypatch.setattr("pyasynq.gateway.hosted.admission._STEP_SECONDS", step)
    monkeypatch.setattr("pyasynq.gateway.hosted.admission._LEAST_SPREAD", 0.01)
    attempts_at_once: list[int] = []
    are_enough = asyncio.Event()
    names = [str(number) for number in range(8)]
    async with hosting() as host, delivering(redis_url, host) as visitor:
        host.answer = lambda _: web.Response(status=429, headers={"Retry-After": "1"})
        await enqueue(visitor, "first")
        await wait_until(visitor, TaskState.RETRY, "first")

        async def answer(_: web.Request) -> web.Response:
            assert visitor.service._hosted is not None
            attempts_at_once.append(visitor.service._hosted.running)
            if attempts_at_once[-1] >= enough:
                are_enough.set()
            await are_enough.wait()
            return web.Response()

        host.answer = answer
        for name in names:
            await enqueue(visitor, name)
        for name in names:
            await wait_until(visitor, TaskState.COMPLETED, name)
    assert (enough == 1) == (max(attempts_at_once) == 1)


@run_async
async def test_a_task_that_waited_for_max_age_is_archived(redis_url: str) -> None:
    """By the instance that calls the host as by another one; a task that is run again may wait again."""
    old = {WAITS_SINCE_HEADER: str(int(time.time()) - 3_700)}
    fields: dict[str, Any] = {"max_age": "1h"}
    async with hosting() as host:
        host.answer = lambda _: web.Response(status=429, headers={"Retry-After": "600"})
        async with delivering(redis_url, host, **fields) as visitor:
            await enqueue(visitor, "a", headers=old)
            called = await wait_until(visitor, TaskState.ARCHIVED, "a")
        async with delivering(redis_url, host, **fields) as visitor:
            await enqueue(visitor, "b", headers=old)
            uncalled = await wait_until(visitor, TaskState.ARCHIVED, "b")
        async with delivering(redis_url, host, **fields) as visitor:
            run_at = int(time.time())
            await visitor.operator.run_task("deliver", "b")
            again = await wait_until(visitor, TaskState.RETRY, "b")
        assert 1 == len(host.requests)
    assert "the host answered 429" in called.last_error
    assert "has asked to be left alone" in uncalled.last_error
    for task in (called, uncalled):
        assert 0 == task.retried
        assert "it has waited for 1 h" in task.last_error
        assert "max_age is 1 h" in task.last_error
        assert WAITS_SINCE_HEADER not in task.headers
    assert run_at <= int(again.headers[WAITS_SINCE_HEADER])


@run_async
async def test_slots_of_a_killed_instance_are_free_when_they_lapse(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Until then its requests may still run at the host."""
    async with hosting() as host, delivering(redis_url, host, {"concurrency": 2}) as visitor:
        name = f"127.0.0.1:{host.port}"
        dead = HostGate(visitor.operator, name, concurrency=2)
        assert 2 == (await dead.enter(["dead:0", "dead:1"])).admitted
        await enqueue(visitor, "a")
        await is_paused(visitor)
        task = await wait_until(visitor, TaskState.PENDING, "a")
        assert (0, 0) == (len(host.requests), task.retried)
        redis_client.zadd(semaphore_key(host_slots_scope(name)), {"dead:0": 1})
        await wait_until(visitor, TaskState.COMPLETED, "a")
        assert [b"dead:1"] == redis_client.zrange(semaphore_key(host_slots_scope(name)), 0, -1)
        redis_client.delete(semaphore_key(host_slots_scope(name)))


@run_async
async def test_a_long_request_keeps_its_slot(
    redis_url: str, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renews the slot until its answer has come."""
    monkeypatch.setattr("pyasynq.gateway.hosted.admission._RENEW_SECONDS", 0.05)
    turn = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await turn.wait()
        return web.Response()

    async with hosting() as host, delivering(redis_url, host, {"concurrency": 2}) as visitor:
        host.answer = wait
        slots = semaphore_key(host_slots_scope(f"127.0.0.1:{host.port}"))
        await enqueue(visitor, "a")
        await host.wait_for(1)
        [holder] = redis_client.zrange(slots, 0, -1)
        before = redis_client.zscore(slots, holder)
        assert before is not None
        redis_client.zadd(slots, {holder: before - 30})
        await until(lambda: (redis_client.zscore(slots, holder) or 0) >= before)
        turn.set()
        await wait_until(visitor, TaskState.COMPLETED, "a")
        assert not redis_client.exists(slots)


@run_async
async def test_tasks_are_put_off_while_redis_does_not_tell_the_limits(
    redis_url: str,
    redis_client: RedisClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No request is sent, no retry is spent, and the log says it once. They end when Redis tells."""
    monkeypatch.setattr("pyasynq.gateway.hosted.admission._UNKNOWN_SECONDS", 0.05)
    monkeypatch.setattr("pyasynq.gateway.hosted.admission._LEAST_SPREAD", 0.05)
    async with hosting() as host, delivering(redis_url, host) as visitor:
        gate = host_gate_key(f"127.0.0.1:{host.port}")
        redis_client.set(gate, "a wrong type")
        for name in "ab":
            await enqueue(visitor, name)
            task = await wait_until(visitor, TaskState.RETRY, name)
            assert (0, 0) == (len(host.requests), task.retried)
            assert "the limits of the host cannot be read from Redis" == task.last_error
        warnings = [record.getMessage() for record in caplog.records if "requests to" in record.getMessage()]
        assert 1 == len(warnings), warnings
        redis_client.delete(gate)
        for name in "ab":
            assert 0 == (await wait_until(visitor, TaskState.COMPLETED, name)).retried


@run_async
async def test_a_throttling_that_redis_does_not_take_is_told(
    redis_url: str, redis_client: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    """This instance obeys it; others ask the host as well."""
    turn = asyncio.Event()

    async def throttle(_: web.Request) -> web.Response:
        await turn.wait()
        return web.Response(status=503, headers={"Retry-After": "600"})

    async with hosting() as host, delivering(redis_url, host) as visitor:
        host.answer = throttle
        gate = host_gate_key(f"127.0.0.1:{host.port}")
        await enqueue(visitor, "a")
        await host.wait_for(1)
        redis_client.set(gate, "a wrong type")
        turn.set()
        task = await wait_until(visitor, TaskState.RETRY, "a")
        assert (0, True) == (task.retried, "503" in task.last_error)
        await is_paused(visitor)
        redis_client.delete(gate)
    assert "other instances do not know" in caplog.text


@run_async
async def test_the_limits_of_a_batch_cost_one_call(redis_url: str, redis_client: RedisClient) -> None:
    """However many tasks a lease brings, and although the host has no limits."""
    async with hosting() as host, delivering(redis_url, host) as visitor:
        await enqueue(visitor, "first")
        await wait_until(visitor, TaskState.COMPLETED, "first")
        asked: list[int] = []
        [admission] = admissions(visitor)
        enter = admission._gate.enter

        async def count(ids: Any) -> Any:
            asked.append(len(ids))
            return await enter(ids)

        admission._gate.enter = count  # type: ignore[method-assign] # counts calls
        await visitor.operator.pause_queue("deliver")
        for number in range(20):
            await enqueue(visitor, str(number))
        await visitor.operator.resume_queue("deliver")
        for number in range(20):
            await wait_until(visitor, TaskState.COMPLETED, str(number))
    assert [20] == asked
