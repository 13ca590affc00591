"""Outcome of a call whose connection breaks, with a proxy that breaks it at a chosen point."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.dequeue import dequeue, find_dequeued
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq.errors import RedisUnavailableError, ReplyLostError
from pyasynq.task import EnqueueStatus, Task
from tests.contract.enqueueing import composed
from tests.contract.test_driver_run import increment
from tests.factories import registered
from tests.fix_proxy import Cut, Proxy
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    import redis

    from pyasynq._broker.dequeue import Dequeued
    from pyasynq._broker.enqueueing.enqueue import OtherResults
    from pyasynq._redis.plan import Plan
    from tests.contract.test_driver_run import MakeDriver
    from tests.factories import Tasks
    from tests.fix_drivers import ClientFace

EVERYWHERE = pytest.mark.parametrize("cut", list(Cut))


def enqueue(*ids: str) -> Plan[OtherResults]:
    """Enqueue tasks by a client that knows nothing yet."""
    [run] = split_runs([composed(one) for one in ids])
    return registered(enqueue_run(run, now=SYSTEM_CLOCK.now()), run.queue)


def take(token: str) -> Plan[Dequeued]:
    """Dequeue up to ten tasks."""
    return dequeue("default", limit=10, token=token, now=None)


@EVERYWHERE
def test_w25_a_lost_reply_is_not_a_conflict(
    make_driver: MakeDriver, proxy: Proxy, tasks: Tasks, cut: Cut
) -> None:
    """Wherever the connection breaks, the tasks are enqueued once and reported as enqueued."""
    driver = make_driver(proxy.url)
    driver.run(enqueue("before"))
    proxy.cut(cut, containing=b"EVALSHA")
    assert not driver.run(enqueue("a", "b"))
    assert ["before", "a", "b"] == tasks.ids("pending")
    proxy.wait(lambda proxy: proxy.cuts == 1)


@EVERYWHERE
def test_w25_a_real_conflict_stays_one(make_driver: MakeDriver, proxy: Proxy, tasks: Tasks, cut: Cut) -> None:
    """Another task with this id was there before the first try."""
    tasks.pending("a")
    driver = make_driver(proxy.url)
    driver.run(increment())
    proxy.cut(cut, containing=b"EVALSHA")
    [run] = split_runs([composed("a", b"another payload")])
    others = driver.run(registered(enqueue_run(run, now=SYSTEM_CLOCK.now()), run.queue))
    assert EnqueueStatus.CONFLICT is others[0].status
    assert ["a"] == tasks.ids("pending")


def test_what_may_never_be_replayed_raises_when_its_reply_is_lost(
    make_driver: MakeDriver, proxy: Proxy, tasks: Tasks
) -> None:
    """A dequeue ran, its tasks are active, and its token finds them again."""
    driver = make_driver(proxy.url)
    driver.run(take("before"))
    driver.run(enqueue("a"))
    never = driver.driver.last_disconnect
    proxy.cut(Cut.BEFORE_REPLY, containing=b"EVALSHA")
    with pytest.raises(ReplyLostError, match=str(proxy.port)):
        driver.run(take("token"))
    assert (None, True) == (never, driver.driver.last_disconnect is not None)
    assert ["a"] == tasks.ids("active")
    assert ["a"] == [task.id for task in driver.run(find_dequeued("default", token="token"))]


def test_the_plans_of_a_batch_are_resent_each_by_its_own_rule(
    make_driver: MakeDriver, proxy: Proxy, tasks: Tasks
) -> None:
    """One pipeline, one break: the enqueue is replayed, the counter is not."""
    driver = make_driver(proxy.url)
    driver.run_batch([enqueue("before"), increment()])
    proxy.cut(Cut.BEFORE_REPLY, containing=b"EVALSHA")
    lost, others = driver.run_batch([increment(), enqueue_again("a")])
    assert isinstance(lost, ReplyLostError)
    assert {} == others
    assert 3 == driver.run(increment())
    assert ["before", "a"] == tasks.ids("pending")


def enqueue_again(task_id: str) -> Plan[OtherResults]:
    """Enqueue a task by a client that knows the queue, so that it is one call."""
    [run] = split_runs([composed(task_id)])
    return enqueue_run(run, now=SYSTEM_CLOCK.now())


def test_several_breaks_in_a_row_are_survived(make_driver: MakeDriver, proxy: Proxy, tasks: Tasks) -> None:
    """The last one lets it through."""
    driver = make_driver(proxy.url)
    for cut in (Cut.BEFORE_REPLY, Cut.BEFORE_REQUEST, Cut.IN_REPLY):
        proxy.cut(cut, containing=b"EVALSHA")
    assert not driver.run(enqueue("a"))
    assert ["a"] == tasks.ids("pending")


def test_h20_connections_that_are_refused_for_a_while_are_waited_for(
    make_driver: MakeDriver, proxy: Proxy
) -> None:
    """Each refusal is a new try after a pause; the time-out is not used up by the first."""
    driver = make_driver(proxy.url)
    proxy.refuse()
    proxy.on_refusal(3, lambda: proxy.refuse(refusing=False))
    assert 1 == driver.run(increment())


def test_a_network_that_swallows_everything_ends_with_the_time_out(
    make_driver: MakeDriver, proxy: Proxy
) -> None:
    """What was sent may have taken effect; afterwards a new connection works."""
    driver = make_driver(proxy.url, timeout=0.3)
    driver.run(increment())
    proxy.hold()
    before = time.monotonic()
    with pytest.raises(ReplyLostError, match="no reply within"):
        driver.run(increment())
    with pytest.raises(RedisUnavailableError):
        driver.run(increment())
    assert time.monotonic() - before < PATIENCE
    proxy.release()
    assert driver.run(increment()) in {2, 3}


def test_a_lost_reply_of_enqueue_many_is_unknown(
    make_client: object, proxy: Proxy, redis_client: redis.Redis
) -> None:
    """The chunk whose replies are lost for good says unknown; the chunks before and after it are enqueued."""
    client: ClientFace = make_client(proxy.url, timeout=0.5)  # type: ignore[operator]
    client.enqueue("warm:up")
    proxy.cut(Cut.BEFORE_REPLY, containing=b"task-0600", times=1000)
    results = client.enqueue_many(
        (Task("t", b"", task_id=f"task-{n:04}") for n in range(1500)), on_error="return"
    )
    assert {EnqueueStatus.UNKNOWN} == {result.status for result in results[500:1000]}
    assert all(isinstance(result.error, ReplyLostError) for result in results[500:1000])
    assert all(results[:500])
    assert all(results[1000:])
    assert 1501 == redis_client.llen("asynq:{default}:pending")
