"""Queues with many groups: no single call keeps Redis busy for long, by the commands that it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.doctoring.groups import list_known_groups
from pyasynq._broker.groups import list_groups
from pyasynq._broker.inspecting.collection_sizes import CountedPlace, count_collections
from pyasynq._broker.inspecting.group_counts import (
    GroupCounts,
    describe_groups,
    list_group_page,
    read_group_sizes,
)
from pyasynq._broker.inspecting.queues import count_tasks, queue_info
from pyasynq._broker.inspecting.removal import remove_queue
from pyasynq._broker.inspecting.reports import type_report
from pyasynq.errors import InvalidOptionError, QueueNotEmptyError
from pyasynq.info import CollectionCount
from pyasynq.task import TaskState
from tests.factories import NOW, message_bytes
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from pyasynq._redis.plan import Call
    from tests.factories import Tasks
    from tests.invariants import RedisClient

MANY = 12_000
MOST_COMMANDS = 1_200
"""Commands that one call may run: two take about a microsecond, so this is far under 10 ms."""

pytestmark = pytest.mark.single_server("it counts the commands that one server runs")


class CountingPerformer(BlockingPerformer):
    """Performs plans, and fails on a call that runs too many commands, or returns too many names."""

    def _send_once(self, call: Call) -> Any:
        before = self._commands()
        reply = super()._send_once(call)
        ran = self._commands() - before
        assert ran <= MOST_COMMANDS, (call, ran)
        if isinstance(reply, list):
            assert sum(len(part) if isinstance(part, list) else 1 for part in reply) <= 2 * MOST_COMMANDS + 1
        return reply

    def _commands(self) -> int:
        return sum(stats["calls"] for stats in self._client.info("commandstats").values())


@pytest.fixture
def counting(redis_client: RedisClient) -> CountingPerformer:
    """Performs plans call by call, and counts the commands of each."""
    return CountingPerformer(redis_client)


def put_groups(tasks: Tasks, number: int, *, members: int = 1) -> None:
    """Make this many groups, with this many members each; 0 leaves only their names."""
    client, keys = tasks.client, tasks.keys
    names = [f"g{at}" for at in range(number)]
    pipeline = client.pipeline(transaction=False)
    for name in names if members else ():
        pipeline.zadd(keys.group(name), {f"{name}/{at}": NOW.seconds for at in range(members)})
    pipeline.sadd(keys.groups, *names)
    pipeline.sadd("asynq:queues", keys.queue)
    pipeline.execute()


def put_grouped(tasks: Tasks, number: int) -> None:
    """Make this many groups with one task each."""
    client, keys = tasks.client, tasks.keys
    pipeline = client.pipeline(transaction=False)
    pipeline.sadd("asynq:queues", keys.queue)
    for at in range(number):
        group, task_id = f"g{at}", f"t{at}"
        message = message_bytes(task_id, group_key=group)
        pipeline.hset(keys.task(task_id), mapping={"msg": message, "state": "aggregating", "group": group})
        pipeline.zadd(keys.group(group), {task_id: NOW.seconds})
        pipeline.sadd(keys.groups, group)
    pipeline.execute()


@pytest.mark.usefixtures("damage_allowed")
def test_up_to_1_000_groups_are_counted_at_once(counting: CountingPerformer, tasks: Tasks) -> None:
    """One call counts them, so the number belongs to one moment. (D24)"""
    put_groups(tasks, 1_000, members=2)
    counts = counting(count_tasks("default", NOW))
    assert (2_000, 1_000, None) == (counts.aggregating, counts.groups, counts.aggregating_at)


@pytest.mark.usefixtures("damage_allowed")
def test_more_groups_are_counted_in_parts_and_the_number_has_its_time(
    counting: CountingPerformer, tasks: Tasks
) -> None:
    """The first answers are estimates; then it is the last complete count, which began a while ago. (D24)"""
    put_groups(tasks, MANY, members=2)
    memory = GroupCounts()

    first = counting(count_tasks("default", NOW, memory))
    assert (2 * MANY, MANY, NOW) == (first.aggregating, first.groups, first.aggregating_at)

    answers = [counting(count_tasks("default", NOW.plus(at), memory)) for at in range(1, 3)]
    assert (2 * MANY, NOW) == (answers[-1].aggregating, answers[-1].aggregating_at)

    tasks.client.zadd(tasks.keys.group("g7"), dict.fromkeys(map(str, range(100)), 1))
    answers = [counting(count_tasks("default", NOW.plus(at), memory)) for at in range(3, 6)]
    assert (2 * MANY, NOW) == (answers[0].aggregating, answers[0].aggregating_at)
    assert (2 * MANY + 100, NOW.plus(3)) == (answers[-1].aggregating, answers[-1].aggregating_at)


@pytest.mark.usefixtures("damage_allowed")
def test_the_inspector_tells_when_it_counted(counting: CountingPerformer, tasks: Tasks) -> None:
    """A dashboard can show how old the number is; the memory goes by it. (D24)"""
    put_groups(tasks, MANY)
    info = counting(queue_info("default", now=NOW))
    assert (NOW.to_datetime(), MANY) == (info.aggregating_at, info.aggregating)
    assert MANY == len(counting(describe_groups("default")))


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize("groups", [500, 501, 5_500])
def test_a_search_counts_up_to_500_groups_in_one_call(
    counting: CountingPerformer, tasks: Tasks, groups: int
) -> None:
    """More groups are counted in parts, and more than 5,000 are estimated. (D24)"""
    put_groups(tasks, groups, members=2)
    places = [CountedPlace(TaskState.AGGREGATING), CountedPlace(TaskState.RETRY)]
    expected = [CollectionCount(2 * groups, 2 * groups), CollectionCount(0, 0)]
    assert expected == counting(count_collections("default", places, now=NOW))
    assert (groups <= 500) is (1 == len(counting.calls))


@pytest.mark.usefixtures("damage_allowed")
def test_groups_are_listed_in_parts(counting: CountingPerformer, tasks: Tasks) -> None:
    """The lists of the inspector and of the aggregator come in parts. (D24)"""
    put_groups(tasks, MANY)
    assert dict.fromkeys(sorted(f"g{at}" for at in range(MANY)), 1) == counting(read_group_sizes("default"))
    assert sorted(f"g{at}" for at in range(MANY)) == counting(list_groups("default"))
    groups, sets = counting(list_known_groups("default"))
    assert (MANY, 0) == (len(groups), len(sets))


def test_a_queue_with_many_names_of_empty_groups_is_removed(
    counting: CountingPerformer, tasks: Tasks
) -> None:
    """The names are forgotten in parts. (D24)"""
    put_groups(tasks, MANY, members=0)
    assert 0 == counting(remove_queue("default", force=False, progress=None))
    assert [] == tasks.client.keys("*")


def test_a_queue_with_many_groups_is_removed_by_force_in_few_calls(
    counting: CountingPerformer, tasks: Tasks
) -> None:
    """Fails if each group takes a call; progress tells of up to 250 tasks at a time."""
    put_grouped(tasks, MANY)
    told: list[tuple[int, int]] = []
    assert MANY == counting(remove_queue("default", force=True, progress=lambda *pair: told.append(pair)))
    assert [] == tasks.client.keys("*")
    assert [(done, MANY) for done in range(250, MANY + 1, 250)] == told
    assert len(counting.calls) < MANY / 50


def test_a_queue_with_many_groups_of_ids_without_a_task_is_removed_by_force_in_few_calls(
    counting: CountingPerformer, tasks: Tasks
) -> None:
    """Nothing is deleted that could be counted."""
    put_groups(tasks, MANY)
    assert 0 == counting(remove_queue("default", force=True, progress=None))
    assert [] == tasks.client.keys("*")
    assert len(counting.calls) < MANY / 50


def test_groups_of_all_sizes_are_removed_by_force(counting: CountingPerformer, tasks: Tasks) -> None:
    """A large group is emptied by itself, and small ones share calls."""
    sizes = [1, 100, 149, 250, 0, 251, 2, 1_001, 249, 1, 3]
    for number, size in enumerate(sizes):
        ids = [f"{number}/{at}" for at in range(size)]
        tasks.put(TaskState.AGGREGATING, *ids, group=f"g{number}")
        tasks.client.sadd(tasks.keys.groups, f"g{number}")
    told: list[tuple[int, int]] = []
    deleted = counting(remove_queue("default", force=True, progress=lambda *pair: told.append(pair)))
    assert sum(sizes) == deleted
    assert (deleted, deleted) == told[-1]
    assert sorted(told) == told
    assert [] == tasks.client.keys("*")


@pytest.mark.usefixtures("damage_allowed")
def test_a_queue_with_tasks_in_many_groups_is_kept(counting: CountingPerformer, tasks: Tasks) -> None:
    """The error says how many there are. (D24)"""
    put_groups(tasks, MANY)
    with pytest.raises(QueueNotEmptyError, match=f"{MANY:,}|{MANY}"):
        counting(remove_queue("default", force=False, progress=None))
    assert MANY == tasks.client.scard(tasks.keys.groups)


@pytest.mark.usefixtures("damage_allowed")
def test_d24_groups_are_listed_in_pages(counting: CountingPerformer, tasks: Tasks) -> None:
    """Each group is on one page at least; a page tells how many groups there are."""
    put_groups(tasks, MANY)
    names: set[str] = set()
    cursor, pages = "", 0
    while True:
        page = counting(list_group_page("default", cursor, 1_000))
        names |= {group.name for group in page.groups}
        cursor, pages = page.cursor, pages + 1
        assert (MANY, {1}) == (page.total, {group.size for group in page.groups})
        if not cursor:
            break
    assert {f"g{at}" for at in range(MANY)} == names
    assert 8 <= pages <= 20


@pytest.mark.usefixtures("damage_allowed")
def test_a_cursor_of_groups_is_checked(counting: CountingPerformer, tasks: Tasks) -> None:
    """It comes from outside."""
    put_groups(tasks, 1)
    for cursor, page_size in (("x", 1), ("-1", 1), (str(2**64), 1), ("", 0), ("", 1_001)):
        with pytest.raises(InvalidOptionError):
            counting(list_group_page("default", cursor, page_size))


@pytest.mark.usefixtures("damage_allowed")
def test_d24_a_report_of_types_looks_at_a_part_of_many_groups(
    counting: CountingPerformer, tasks: Tasks
) -> None:
    """And asks for no more pages of groups than it needs."""
    put_groups(tasks, MANY)
    report = counting(type_report("default", scan=100, since=None, until=None))
    assert (100, False) == (report.scanned, report.is_complete)
    assert len(counting.calls) < 150
