"""Walks: the newest first, each task once, however the list moves between two pages."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.inspecting.cursors import encode_cursor, list_tag
from pyasynq._broker.inspecting.pace import ChunkPace
from pyasynq._broker.inspecting.walks import Starts, Walk, walk_tasks
from pyasynq._clock import Instant
from pyasynq.errors import InvalidOptionError, QueueNotFoundError
from pyasynq.info import ScanFilter, ScanText, TaskPage
from pyasynq.task import TaskState
from tests.factories import NOW, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer
from tests.slow_calls import within_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

SCORED = ("scheduled", "retry", "archived", "completed")


def page(perform: Perform, state: str, starts: Starts | None = None, **asked: Any) -> TaskPage:
    """Return one page of the tasks of the queue `default`."""
    walk = Walk("default", state, **asked)
    return perform(walk_tasks(walk, now=NOW, pace=ChunkPace(), starts=starts))


def ids(found: TaskPage) -> list[str]:
    """Return the ids of a page."""
    return [task.id for task in found.tasks]


def walked(
    perform: Perform, state: str, between: Callable[[], object] = lambda: None, **asked: Any
) -> list[str]:
    """Return the ids of all pages; something is done between two of them."""
    found: list[str] = []
    cursor = ""
    while True:
        one = page(perform, state, cursor=cursor, **asked)
        found += ids(one)
        cursor = one.cursor
        if not cursor:
            return found
        between()


@pytest.mark.parametrize("state", SCORED)
def test_tasks_with_scores_come_from_the_highest_down(perform: Perform, tasks: Tasks, state: str) -> None:
    """Tasks of one score come by their ids, downwards as well."""
    for score, some in ((1, "ab"), (3, "cd"), (2, "e")):
        kept = score if state == "completed" else 0
        completed_at = NOW.seconds if kept else 0
        tasks.put(
            TaskState(state), *some, score=NOW.seconds + score, retention=kept, completed_at=completed_at
        )
    assert list("dceba") == walked(perform, state, page_size=2)


def test_pending_tasks_come_from_the_newest_to_the_next(perform: Perform, tasks: Tasks) -> None:
    """The reverse of the order in which they will be taken."""
    tasks.pending(*"abcde")
    assert list("edcba") == walked(perform, "pending", page_size=2)


def test_active_tasks_come_by_their_start(perform: Perform, tasks: Tasks) -> None:
    """Tasks whose server does not tell come first: they are the newest."""
    tasks.active(*"abcde")
    starts = {("default", one): Instant(NOW.seconds - age) for one, age in (("a", 1), ("b", 3), ("c", 2))}
    assert list("deacb") == walked(perform, "active", starts=starts, page_size=2)


def test_groups_come_one_after_another(perform: Perform, tasks: Tasks) -> None:
    """Groups come in the order of their names; `group=` selects a single one."""
    tasks.put(TaskState.AGGREGATING, "a", group="y", score=NOW.seconds)
    tasks.put(TaskState.AGGREGATING, "b", group="y", score=NOW.seconds + 1)
    tasks.put(TaskState.AGGREGATING, "c", group="x")
    assert list("cba") == walked(perform, "aggregating", page_size=1)
    assert list("ba") == walked(perform, "aggregating", page_size=1, group="y")


@pytest.mark.parametrize("state", [*SCORED, "pending", "active", "aggregating"])
def test_an_empty_list_ends_at_once(perform: Perform, tasks: Tasks, state: str) -> None:
    """An empty list gives one empty page without a cursor."""
    tasks.put(TaskState.RETRY if state != "retry" else TaskState.ARCHIVED, "z")
    assert TaskPage((), "", 0) == page(perform, state)


def test_a_walk_needs_its_queue(perform: Perform) -> None:
    """A misspelt name must not look like an empty queue."""
    with pytest.raises(QueueNotFoundError):
        page(perform, "retry")


@pytest.mark.parametrize("state", ["archived", "pending", "active", "aggregating"])
def test_a_page_looks_at_a_limited_number_of_positions(perform: Perform, tasks: Tasks, state: str) -> None:
    """Whether they match or not; the next one goes on behind them."""
    group = "g" if state == "aggregating" else ""
    tasks.put(TaskState(state), *"abcde", type="image", group=group)
    tasks.put(TaskState(state), "f", type="email", group=group)
    if state == "active":
        tasks.client.zadd(tasks.keys.lease, dict.fromkeys("abcdef", NOW.seconds))
    wanted = ScanFilter(texts=((ScanText("message", b"email"),),))
    found, looked_at, cursor = [], [], ""
    while True:
        one = page(perform, state, cursor=cursor, scan=4, scan_filter=wanted)
        found += ids(one)
        looked_at.append(one.looked_at)
        cursor = one.cursor
        if not cursor:
            break
    assert (["f"], [4, 2]) == (found, looked_at)


TEXTS = [
    ((("message", "type-a"),), "a"),
    ((("message", "boom"),), "ab"),
    ((("message", "boom"),), "ab"),
    ((("message", "type-a"), ("message", "type-c")), "ac"),
    ((("id", "type-"),), "abc"),
    ((("result", "sent"),), "b"),
    ((("result", "type-"),), ""),
    ((("result", "sent"), ("message", "type-a")), "ab"),
]


@pytest.mark.parametrize(("alternatives", "expected"), TEXTS)
def test_redis_sends_only_tasks_with_the_texts(
    perform: Perform, tasks: Tasks, alternatives: tuple[tuple[Any, str], ...], expected: str
) -> None:
    """In the message, in the message or the id, in the result; one of each group."""
    tasks.put(TaskState.ARCHIVED, "a", type="type-a", error_msg="boom")
    tasks.put(TaskState.ARCHIVED, "b", type="type-x", error_msg="boom", extra={"result": "sent"})
    tasks.put(TaskState.ARCHIVED, "c", type="type-c", error_msg="b%d")
    group = tuple(ScanText(source, text.encode()) for source, text in alternatives)
    assert sorted(expected) == sorted(ids(page(perform, "archived", scan_filter=ScanFilter(texts=(group,)))))
    both = ScanFilter(texts=(group, (ScanText("message", b"type-"),)))
    assert sorted(expected) == sorted(ids(page(perform, "archived", scan_filter=both)))


@pytest.mark.usefixtures("damage_allowed")
def test_an_id_is_looked_for_outside_the_message_too(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """A task has the id of its key, whatever the message says."""
    tasks.put(TaskState.ARCHIVED, "xyz")
    redis_client.hset(tasks.keys.task("xyz"), "msg", message_bytes("abc"))
    for text, found in ((b"xy", ["xyz"]), (b"abc", ["xyz"]), (b"abd", [])):
        wanted = ScanFilter(texts=((ScanText("id", text),),))
        assert found == ids(page(perform, "archived", scan_filter=wanted))


def test_scores_bound_a_walk(perform: Perform, tasks: Tasks) -> None:
    """Both ends are included, and no position outside is looked at."""
    for number in range(6):
        tasks.put(TaskState.ARCHIVED, f"{number}", score=1_000 + number)
    found = page(perform, "archived", scan_filter=ScanFilter(1_002, 1_004))
    assert (list("432"), 3, "") == (ids(found), found.looked_at, found.cursor)
    assert list("432") == walked(perform, "archived", page_size=1, scan_filter=ScanFilter(1_002, 1_004))
    assert 0 == page(perform, "archived", scan_filter=ScanFilter(1_004, 1_002)).looked_at


@pytest.mark.usefixtures("damage_allowed")
def test_what_cannot_be_read_is_looked_at_and_left_out(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """A missing hash, a broken message, an unknown state."""
    for state in ("archived", "pending"):
        some = [f"{state}{number}" for number in range(4)]
        tasks.put(TaskState(state), *some)
        redis_client.delete(tasks.keys.task(some[0]))
        redis_client.hset(tasks.keys.task(some[1]), "msg", b"\xff")
        redis_client.hset(tasks.keys.task(some[2]), "state", "frozen")
        found = page(perform, state)
        assert ([some[3]], 4, "") == (ids(found), found.looked_at, found.cursor)


def test_a_call_ends_when_it_has_read_two_megabytes(tasks: Tasks, redis_client: RedisClient) -> None:
    """Large messages must not keep Redis busy; the walk goes on with the next call."""
    for state in ("archived", "pending", "active"):
        perform = BlockingPerformer(redis_client)
        some = [f"{state}{number}" for number in range(4)]
        tasks.put(TaskState(state), *some, payload=bytes(1_200_000))
        if state == "active":
            redis_client.zadd(tasks.keys.lease, dict.fromkeys(some, NOW.seconds))
        found = page(perform, state, starts={})
        assert (4, 4, "") == (len(found.tasks), found.looked_at, found.cursor)
        assert 2 == sum("EVAL" not in str(call) and hasattr(call, "script") for call in perform.calls)


BAD_CURSORS = [
    "x",
    "é",
    "W10",
    encode_cursor("00000000", ("1", "a")),
    encode_cursor(list_tag("default", "archived", ""), ("1",)),
    encode_cursor(list_tag("default", "archived", ""), ("nan", "a")),
    encode_cursor(list_tag("default", "archived", ""), ("1_0", "a")),
    encode_cursor(list_tag("default", "archived", ""), (1, "a")),
    encode_cursor(list_tag("default", "archived", ""), ("1", None)),
    "a" * 100_000,
]


@pytest.mark.parametrize("cursor", BAD_CURSORS)
def test_a_cursor_of_another_list_is_refused(perform: Perform, tasks: Tasks, cursor: str) -> None:
    """And whatever else was not returned by a walk of this list."""
    tasks.put(TaskState.ARCHIVED, "a")
    with pytest.raises(InvalidOptionError, match=r"^cursor="):
        page(perform, "archived", cursor=cursor)


@pytest.mark.parametrize("asked", [{"page_size": 0}, {"page_size": 1_001}, {"scan": 0}, {"group": "g"}])
def test_a_page_has_bounds(perform: Perform, tasks: Tasks, asked: dict[str, Any]) -> None:
    """The error names the argument."""
    tasks.put(TaskState.ARCHIVED, "a")
    with pytest.raises(InvalidOptionError, match=f"^{next(iter(asked))}="):
        page(perform, "archived", **asked)


def test_a_cursor_with_long_ids_stays_short(perform: Perform, tasks: Tasks) -> None:
    """Fewer of them are kept."""
    some = [f"{number}" * 900 for number in range(9)]
    tasks.pending(*some)
    one = page(perform, "pending", page_size=4)
    assert len(one.cursor) < 9_000
    assert some[:5] == ids(page(perform, "pending", cursor=one.cursor))[::-1]


class Moves:
    """A list that moves: which ids were there all the time, and what happens between two pages."""

    def __init__(self, tasks: Tasks, state: str, count: int, seed: int) -> None:
        self.tasks = tasks
        self.state = state
        self.client = tasks.client
        self.random = random.Random(seed)
        self.key = "" if state == "aggregating" else getattr(tasks.keys, state)
        self.now_there = [f"{number:06}" for number in self.random.sample(range(1_000_000), count)]
        self.always_there = set(self.now_there)
        self.starts: dict[tuple[str, str], Instant | None] = {}
        self.created = 0
        self.groups: dict[str, str] = {}
        self._enqueue(self.now_there)

    def move(self, times: int = 200) -> None:
        """Let tasks come and go."""
        for _ in range(times):
            if self.random.random() < 0.45 and self.now_there:
                self._leave()
            else:
                self.created += 1
                self._come(f"n{self.random.randrange(10**6):06}-{self.created}")

    def _enqueue(self, some: list[str]) -> None:
        self.client.sadd("asynq:queues", "default")
        batch = self.client.pipeline(transaction=False)
        for number, task_id in enumerate(some):
            self._write(batch, task_id)
            self._place(batch, task_id, number)
            if number % 5_000 == 4_999:
                batch.execute()
        batch.execute()

    def _write(self, batch: Any, task_id: str) -> None:
        values = {"msg": message_bytes(task_id), "state": self.state}
        batch.hset(self.tasks.keys.task(task_id), mapping=values)

    def _place(self, batch: Any, task_id: str, number: int) -> None:
        if self.state == "pending":
            batch.lpush(self.key, task_id)
        elif self.state == "active":
            batch.lpush(self.key, task_id)
            self.starts["default", task_id] = Instant(NOW.seconds - 10**6 + number // 3)
        elif self.state == "aggregating":
            self.groups[task_id] = name = f"g{self.random.randrange(20)}"
            batch.zadd(self.tasks.keys.group(name), {task_id: self.random.randrange(3)})
            batch.sadd(self.tasks.keys.groups, name)
        else:
            batch.zadd(self.key, {task_id: self.random.choice((7, 7, 7, 8))})

    def _come(self, task_id: str) -> None:
        batch = self.client.pipeline(transaction=False)
        self._write(batch, task_id)
        if self.state == "pending" and self.random.random() < 0.1:
            batch.rpush(self.key, task_id)
        else:
            self._place(batch, task_id, 10**6)
        batch.execute()
        self.now_there.append(task_id)

    def _leave(self) -> None:
        if self.state == "pending" and self.random.random() < 0.8:
            task_id = self.client.rpop(self.key)
            if task_id is None:
                return
            gone = task_id.decode()
            self.now_there.remove(gone)
            if self.random.random() < 0.2:
                # Put back, to be taken next.
                self.client.rpush(self.key, gone)
                self.now_there.append(gone)
        else:
            gone = self.now_there.pop(self.random.randrange(len(self.now_there)))
            if self.state in {"pending", "active"}:
                self.client.lrem(self.key, 1, gone)
            elif self.state == "aggregating":
                self.client.zrem(self.tasks.keys.group(self.groups[gone]), gone)
            else:
                self.client.zrem(self.key, gone)
        self.always_there.discard(gone)


@pytest.mark.sample(2)
@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("state", ["archived", "pending", "active", "aggregating"])
def test_a_task_that_is_always_there_is_found_once(
    perform: Perform, tasks: Tasks, state: str, seed: int
) -> None:
    """While 200 tasks come and go between two pages, in sets with very many equal scores, too."""
    moves = Moves(tasks, state, 2_000, seed)
    found = walked(perform, state, moves.move, page_size=100, starts=moves.starts)
    assert moves.always_there, "nothing was there all the time"
    assert {} == {one: found.count(one) for one in moves.always_there if found.count(one) != 1}


@pytest.mark.usefixtures("damage_allowed")
def test_a_list_that_was_emptied_behind_the_place_has_been_walked_through(
    perform: Perform, tasks: Tasks
) -> None:
    """All ids of the cursor are gone, because they were taken; newer tasks are not found again."""
    moves = Moves(tasks, "pending", 3_000, 1)
    one = page(perform, "pending", page_size=1_000)
    tasks.client.ltrim(tasks.keys.pending, 0, 499)
    assert TaskPage((), "", 0) == page(perform, "pending", cursor=one.cursor)
    del moves


@pytest.mark.usefixtures("damage_allowed")
def test_a_page_that_was_deleted_is_followed_by_the_next(perform: Perform, tasks: Tasks) -> None:
    """A walk in order to delete misses no task, in lists and in sets of equal scores."""
    for state in ("pending", "archived"):
        moves = Moves(tasks, state, 100, 1)
        found: list[str] = []
        cursor = ""
        while True:
            one = page(perform, state, cursor=cursor, page_size=30)
            found += ids(one)
            cursor = one.cursor
            for task_id in ids(one):
                if state == "pending":
                    tasks.client.lrem(tasks.keys.pending, 1, task_id)
                else:
                    tasks.client.zrem(tasks.keys.archived, task_id)
            if not cursor:
                break
        assert sorted(moves.always_there) == sorted(found)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.single_server("a million tasks on one node")
@pytest.mark.usefixtures("damage_allowed")
def test_a_place_among_a_million_equal_scores_is_found_again(tasks: Tasks, redis_client: RedisClient) -> None:
    """By bisection, when its task is gone; no call takes more than 10 ms of Redis."""
    redis_client.sadd("asynq:queues", "default")
    batch = redis_client.pipeline(transaction=False)
    for first in range(0, 1_000_000, 10_000):
        batch.zadd(tasks.keys.archived, {f"{number:07}": 7 for number in range(first, first + 10_000)})
        batch.execute()
    perform = BlockingPerformer(redis_client)
    cursor, looked_at = "", 0
    for number in range(20):
        asked = functools.partial(page, perform, "archived", cursor=cursor, scan=50_000)
        one = within_limit(redis_client, asked)
        looked_at += one.looked_at
        cursor = one.cursor
        last = f"{1_000_000 - looked_at:07}"
        assert bool(cursor) == (number < 19)
        gone = [f"{int(last) + offset:07}" for offset in range(200)]
        assert 200 == redis_client.zrem(tasks.keys.archived, *gone)
    assert 1_000_000 == looked_at
