"""Description of many queues at once: few pipelines, and no queue that hides another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import sync
from pyasynq._broker.inspecting.group_counts import GroupCounts
from pyasynq._broker.inspecting.queue_sweep import (
    MOST_QUEUES,
    MOST_WEIGHED,
    MemoryEstimates,
    QueueSweep,
    find_queues,
)
from pyasynq._broker.stored_limits import set_limits
from pyasynq._wire.keys import ALL_QUEUES, queue_keys
from pyasynq.errors import InvalidOptionError, RedisReplyError, RedisUnavailableError
from pyasynq.info import QueueInfo
from pyasynq.limits import QueueLimits
from pyasynq.task import TaskState
from tests.contract.test_inspector import ask  # noqa: F401 - a fixture
from tests.factories import NOW, Tasks
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from pyasynq.info import QueueInfos
    from tests.contract.test_inspector import Ask
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient


def register(client: RedisClient, *names: str) -> None:
    """Make queues without tasks."""
    client.sadd(ALL_QUEUES, *names)


def sweep(
    performer: BlockingPerformer, names: list[str], estimates: MemoryEstimates | None = None
) -> QueueInfos:
    """Describe queues one by one."""
    made = QueueSweep(names, [], lambda key: "", estimates)
    while plans := made.next_plans(NOW, GroupCounts()):
        made.take(plans, [performer(plan) for plan in plans.values()])
    return made.result()


def test_all_queues_are_described_in_the_order_of_their_names(ask: Ask, redis_client: RedisClient) -> None:  # noqa: F811
    """Each description equals the one of `queue_info`."""
    Tasks(redis_client, "b").pending("x", "y")
    Tasks(redis_client, "a").put(TaskState.RETRY, "z")

    infos = ask("queue_infos")

    assert [("a", 0, 1), ("b", 2, 0)] == [(info.queue, info.pending, info.retry) for info in infos]
    assert [ask("queue_info", "a"), ask("queue_info", "b")] == list(infos)
    assert {} == infos.unreadable


def test_named_queues_are_described_in_the_order_given(ask: Ask, redis_client: RedisClient) -> None:  # noqa: F811
    """Each once, and one that does not exist is told as unreadable."""
    register(redis_client, "a", "b", "c")

    infos = ask("queue_infos", ["c", "gone", "a", "c"])

    assert ["c", "a"] == [info.queue for info in infos]
    assert ["gone"] == list(infos.unreadable)
    assert "'gone' does not exist" in infos.unreadable["gone"]
    assert [] == list(ask("queue_infos", []))
    with pytest.raises(InvalidOptionError, match=r"^queue="):
        ask("queue_infos", ["a", " "])


@pytest.mark.usefixtures("damage_allowed")
def test_a_damaged_queue_hides_no_other(ask: Ask, redis_client: RedisClient) -> None:  # noqa: F811
    """Its error is told in its place."""
    register(redis_client, "a", "bad", "c")
    redis_client.set(queue_keys("bad").pending, "not a list")

    infos = ask("queue_infos")

    assert ["a", "c"] == [info.queue for info in infos]
    assert "WRONGTYPE" in infos.unreadable["bad"]


def test_a_redis_that_is_away_is_an_error_and_not_an_empty_answer() -> None:
    """Once, after one time-out, however many queues there are."""
    away = RedisUnavailableError("there", "nothing answers")
    made = QueueSweep(["a", "b"], [], lambda key: "", None)
    plans = made.next_plans(NOW, GroupCounts())

    with pytest.raises(RedisUnavailableError):
        made.take(plans, [away for _ in plans])


def test_the_queues_of_a_node_that_is_away_are_asked_once() -> None:
    """The other nodes go on; each queue of the silent one is unreadable."""
    names = [f"q{number:03}" for number in range(MOST_QUEUES + 2)]
    nodes = {queue_keys(name).pending: "two" if name.endswith("1") else "one" for name in names}
    away = RedisUnavailableError("two", "nothing answers")
    made = QueueSweep(names, [], nodes.__getitem__, None)
    rounds = []
    while plans := made.next_plans(NOW, GroupCounts()):
        rounds.append(len(plans))
        made.take(plans, [away if name.endswith("1") else _info(name) for name in plans])

    assert [MOST_QUEUES, 1] == rounds
    found = made.result()
    assert [name for name in names if name.endswith("1")] == list(found.unreadable)
    assert len(names) - 21 == len(found)


def test_parts_that_are_on_their_way_at_once_end_in_the_order_of_the_names() -> None:
    """Whichever of them Redis answers first."""
    names = [f"q{number:03}" for number in range(2 * MOST_QUEUES)]
    made = QueueSweep(names, ["gone"], lambda key: "", None)
    first, second = made.next_plans(NOW, GroupCounts()), made.next_plans(NOW, GroupCounts())
    damage = RedisReplyError("WRONGTYPE")
    for part in (second, first):
        made.take(part, [damage if name.endswith("00") else _info(name) for name in part])

    found = made.result()
    assert [name for name in names if not name.endswith("00")] == [info.queue for info in found]
    assert ["gone", "q000", "q100", "q200", "q300"] == list(found.unreadable)


def _info(name: str) -> QueueInfo:
    return QueueInfo(name, *(0,) * 12, latency=None, paused=False, timestamp=NOW.to_datetime())  # type: ignore[arg-type]


def test_a_queue_takes_one_call(redis_client: RedisClient, tasks: Tasks) -> None:
    """Neither its existence nor its limits are asked for apart, and nothing is weighed."""
    tasks.pending("a")
    performer = BlockingPerformer(redis_client)
    performer(set_limits("default", 3, 1.5, 2.0, 4))
    before = len(performer.calls)

    [info] = sweep(performer, ["default"])

    assert 1 == len(performer.calls) - before
    assert (QueueLimits(3, 1.5, 2.0, 4), None) == (info.limits, info.memory_usage)


def test_a_pipeline_has_at_most_200_queues() -> None:
    """A pipeline is short, so that Redis serves other clients in between."""
    made = QueueSweep([f"q{number}" for number in range(450)], [], lambda key: "", None)
    rounds = []
    while plans := made.next_plans(NOW, GroupCounts()):
        rounds.append(len(plans))

    assert [200, 200, 50] == rounds


def test_memory_is_estimated_in_rotation(redis_client: RedisClient) -> None:
    """Fifty queues a call, the oldest estimates first; the others keep what is known, with its time."""
    names = [f"q{number:02}" for number in range(MOST_WEIGHED + 10)]
    register(redis_client, *names)
    performer, estimates = BlockingPerformer(redis_client), MemoryEstimates()

    first = sweep(performer, names, estimates)
    second = sweep(performer, names, estimates)

    assert [0] * 50 + [None] * 10 == [info.memory_usage for info in first]
    assert [0] * 60 == [info.memory_usage for info in second]
    assert {NOW.to_datetime()} == {info.memory_at for info in second}
    assert set(names[40:50]) <= estimates.choose(names)


def test_an_old_estimate_of_memory_grows_with_the_queue(redis_client: RedisClient) -> None:
    """The size of a task changes slowly, but the number of tasks may change at once."""
    names = [f"q{number:02}" for number in range(MOST_WEIGHED + 1)]
    register(redis_client, *names)
    performer, estimates = BlockingPerformer(redis_client), MemoryEstimates()
    # The second call estimates the last queue, which has no estimate, and not the one before it.
    growing = Tasks(redis_client, names[-2])
    growing.pending("a", "b")
    before = sweep(performer, names, estimates)[-2]
    growing.pending("c")
    after = sweep(performer, names, estimates)[-2]

    assert before.memory_usage
    assert (round(before.memory_usage * 1.5), before.memory_at) == (after.memory_usage, after.memory_at)


@pytest.mark.parametrize(
    ("queues", "weighed"),
    [(3, 3), (50, 50), (200, 50), (214, 50), (215, 49), (500, 30), (799, 11), (800, 10), (5_000, 10)],
)
def test_the_memory_of_fewer_queues_is_estimated_where_there_are_many(queues: int, weighed: int) -> None:
    """Their counts alone keep Redis busy for long enough."""
    assert weighed == len(MemoryEstimates().choose([f"q{number}" for number in range(queues)]))


def test_queues_are_found_by_one_command_for_a_thousand_names(redis_client: RedisClient) -> None:
    """One command looks up as many as 1,000 names."""
    register(redis_client, "q1", "q1500")
    performer = BlockingPerformer(redis_client)

    found, missing = performer(find_queues(f"q{number}" for number in range(1_501)))

    assert (["q1", "q1500"], 1_499, 2) == (found, len(missing), len(performer.calls))


@pytest.mark.single_server("a test of its own is about clusters")
def test_many_queues_are_read_through_a_driver(redis_url: str, redis_client: RedisClient) -> None:
    """The queues are read in three pipelines."""
    register(redis_client, *(f"q{number:03}" for number in range(401)))
    with sync.Inspector(redis_url) as door:
        before: Any = redis_client.info("commandstats")
        infos = door.queue_infos()
        after: Any = redis_client.info("commandstats")

    assert 401 == len(infos)
    calls = {name: after[name]["calls"] - before.get(name, {"calls": 0})["calls"] for name in after}
    # Redis 6.2 counts SCRIPT LOAD as SCRIPT.
    loads = calls.get("cmdstat_script|load", 0) + calls.get("cmdstat_script", 0)
    assert 401 == calls["cmdstat_evalsha"] - (loads > 0) * 200
    assert 0 == calls.get("cmdstat_sismember", 0) + calls.get("cmdstat_memory|usage", 0)


def test_an_empty_list_of_queues_is_not_an_error(perform: Perform) -> None:
    """An empty database."""
    assert ([], []) == perform(find_queues(None))
