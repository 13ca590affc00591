"""Limits that an operator stores for a queue, and what inspectors show of them and of those of servers."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import Inspector, InvalidOptionError, Queue, QueueLimits, QueueLimitsChangedError
from pyasynq._broker.stored_limits import LIMIT_FIELDS, read_limits, set_limits
from pyasynq._redis.plan import CommandCall
from pyasynq._wire.engine_text import decode_engine, encode_engine
from pyasynq.config import ServerConfig
from pyasynq.limits import UNCHANGED, UNLIMITED
from pyasynq.sync import Inspector as BlockingInspector
from pyasynq.task import TaskState
from tests.fix_engine import do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan
    from pyasynq.limits import LimitChanges
    from tests.factories import Tasks
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

NOTHING = (UNCHANGED, UNCHANGED, None, None)


def stored(tasks: Tasks) -> dict[bytes, bytes]:
    """Return the hash of settings."""
    found: dict[bytes, bytes] = tasks.client.hgetall(tasks.keys.limits)
    return found


def test_limits_are_stored_as_texts_that_people_can_read(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET; what is stored comes back."""
    expected = QueueLimits(3, 100.0, 60.0, 5)
    assert expected == perform(set_limits("default", 3, 100, timedelta(minutes=1), 5))
    assert {b"concurrency": b"3", b"rate": b"100.0", b"period": b"60.0", b"burst": b"5"} == stored(tasks)


def test_each_limit_is_set_and_removed_by_itself(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HDEL; None removes, and what is not given stays."""
    perform(set_limits("default", 3, UNCHANGED, None, None))
    assert QueueLimits(3, 50.0, 1.0, 5) == perform(set_limits("default", UNCHANGED, 50, 1.0, None))
    assert QueueLimits(None, 50.0, 1.0, 5) == perform(set_limits("default", None, UNCHANGED, None, None))
    assert QueueLimits(None, 50.0, 1.0, 5) == perform(set_limits("default", *NOTHING))
    assert UNLIMITED == perform(set_limits("default", UNCHANGED, None, 1.0, None))
    assert {} == stored(tasks), "the plain script looks whether there is such a key"


@pytest.mark.parametrize(
    "before", [NOTHING, (3, UNCHANGED, None, None), (UNCHANGED, 50, 1.0, 5), (3, 50, 60.0, 5)]
)
def test_limits_are_stored_if_they_are_the_expected_ones(
    perform: Perform, tasks: Tasks, before: tuple[Any, ...]
) -> None:
    """Compare-and-set; fails if the script compares any of the five with another one."""
    was = perform(set_limits("default", *before, ordered=True))
    expected = QueueLimits(7, was.rate, was.period, was.burst, True)

    assert expected == perform(set_limits("default", 7, UNCHANGED, None, None, expected=was))
    assert b"7" == stored(tasks)[b"concurrency"]


@pytest.mark.parametrize(
    "meanwhile",
    [
        {"max_run": 5},
        {"max_run": None},
        {"rate": 51.0, "period": 1.0, "burst": 5},
        {"rate": 50.0, "period": 2.0, "burst": 5},
        {"rate": 50.0, "period": 1.0, "burst": 6},
        {"ordered": False},
        {"ordered": None},
    ],
)
@run_async
async def test_limits_that_others_have_changed_are_not_overwritten(
    redis_url: str, redis_client: RedisClient, meanwhile: LimitChanges
) -> None:
    """Whichever of the five it is, nothing is stored."""
    async with Inspector(redis_url) as inspector:
        read = await inspector.set_queue_limits("default", max_run=3, rate=50, burst=5, ordered=True)
        changed = await inspector.set_queue_limits("default", **meanwhile)
        with pytest.raises(QueueLimitsChangedError, match="'default' have changed since"):
            await inspector.set_queue_limits("default", max_run=9, expected=read)

    assert changed == read_limits(redis_client.hmget("asynq:{default}:x:limits", *LIMIT_FIELDS))


@pytest.mark.parametrize(
    ("field", "value"),
    [("concurrency", "4"), ("rate", "51.0"), ("period", "2.0"), ("burst", "6"), ("ordered", "0")],
)
def test_a_change_between_reading_and_writing_is_noticed_by_the_script(
    perform: Perform, tasks: Tasks, field: str, value: str
) -> None:
    """The comparison and the write are one step: a write between both calls of the plan stays."""
    was = perform(set_limits("default", 3, 50, 1.0, 5, ordered=True))
    plan = set_limits("default", 9, UNCHANGED, None, None, expected=was)
    read = next(plan)
    assert isinstance(read, CommandCall)
    replies = tasks.client.hmget(tasks.keys.limits, *LIMIT_FIELDS)
    write = plan.send(replies)

    tasks.client.hset(tasks.keys.limits, field, value)

    def send() -> Plan[Any]:
        return (yield write)

    assert perform(send()) is None
    assert value.encode() == stored(tasks)[field.encode()]
    with pytest.raises(QueueLimitsChangedError):
        plan.send(None)


def test_what_is_expected_must_be_limits() -> None:
    """As the inspector returns them."""
    with pytest.raises(InvalidOptionError, match="must be the QueueLimits that were read"):
        next(set_limits("default", 3, UNCHANGED, None, None, expected=3))  # type: ignore[arg-type]


def test_settings_of_other_kinds_stay(perform: Perform, tasks: Tasks) -> None:
    """They live in the same hash."""
    tasks.client.hset(tasks.keys.limits, "ordered", 1)
    perform(set_limits("default", 3, 50, 1.0, None))
    perform(set_limits("default", None, None, 1.0, None))
    assert {b"ordered": b"1"} == stored(tasks)
    tasks.client.delete(tasks.keys.limits)


@pytest.mark.parametrize(
    ("option", "settings"),
    [
        ("queue", {"queue": " "}),
        ("max_run", {"max_run": 0}),
        ("rate", {"rate": 0}),
        ("period", {"rate": 1, "period": 0}),
        ("burst", {"rate": 1, "burst": 0}),
        ("burst", {"burst": 5}),
        ("period", {"period": 60}),
        ("period", {"max_run": 1, "period": 1}),
        ("burst", {"rate": None, "burst": 5}),
    ],
)
def test_a_limit_that_cannot_work_is_refused_and_nothing_stored(
    redis_url: str, tasks: Tasks, option: str, settings: dict[str, Any]
) -> None:
    """`set_queue_limits` raises the same errors as `Queue`."""
    with (
        BlockingInspector(redis_url) as inspector,
        pytest.raises(InvalidOptionError, match=f"^{option}="),
    ):
        inspector.set_queue_limits(**{"queue": "default", **settings})
    assert {} == stored(tasks)


@run_async
async def test_the_inspector_shows_what_is_stored_and_what_each_server_asks_for(
    redis_url: str, tasks: Tasks
) -> None:
    """A reader of both can tell which limit is in force."""
    tasks.put(TaskState.ARCHIVED, "a")
    config = ServerConfig(queues={"default": Queue(max_run=5, rate=50), "low": 1})
    async with Inspector(redis_url) as inspector, serving(redis_url, do_nothing, config) as running:
        await running.next_round("heartbeater")
        assert UNLIMITED == (await inspector.queue_info("default")).limits
        assert QueueLimits(2) == await inspector.set_queue_limits("default", max_run=2)
        assert QueueLimits(2) == (await inspector.queue_info("default")).limits
        [server] = await inspector.servers("default")
    assert ("pyasynq", {"default": 1, "low": 1}) == (server.engine, server.queues)
    assert {"default": QueueLimits(5, 50.0, 1.0, 5)} == server.limits


def test_removing_a_queue_removes_its_limits_and_tokens(redis_url: str, tasks: Tasks) -> None:
    """W12: nothing is left behind, that of ours neither."""
    tasks.client.sadd("asynq:queues", "default")
    with BlockingInspector(redis_url) as inspector:
        inspector.set_queue_limits("default", max_run=1)
        tasks.client.hset(tasks.keys.bucket, "full_at", 1)
        tasks.client.expire(tasks.keys.bucket, 60)
        inspector.remove_queue("default")
    assert [] == tasks.client.keys("*")


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (("", {}), ""),
        (("pyasynq", {}), "pyasynq"),
        (("pyasynq", {}), "pyasynq {"),
        (("pyasynq", {}), "pyasynq []"),
        (("pyasynq", {}), "pyasynq {}"),
        (("pyasynq", {}), 'pyasynq {"limits":[]}'),
        (("pyasynq", {}), 'pyasynq {"limits":{"q":3}}'),
        (("pyasynq", {"q": QueueLimits(3)}), 'pyasynq {"limits":{"q":{"concurrency":3,"new":1}},"new":1}'),
    ],
)
def test_what_a_server_says_of_itself_is_read_as_far_as_it_is_known(expected: object, text: str) -> None:
    """A newer pyasynq may say more; a record never breaks the list of servers."""
    assert expected == decode_engine(text)


def test_what_a_server_says_of_itself_comes_back() -> None:
    """Queues without limits are not named, and without any the text is the name alone."""
    limits = {"deliver": QueueLimits(1), "mail": QueueLimits(None, 0.5, 60.0, 2), "default": UNLIMITED}
    text = encode_engine("pyasynq", limits)
    assert ("pyasynq", {queue: limit for queue, limit in limits.items() if limit}) == decode_engine(text)
    assert "pyasynq" == encode_engine("pyasynq", {"default": UNLIMITED})
