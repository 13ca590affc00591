"""The doctor on lists that are too long for a script to walk through."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.doctoring import lists as doctor_lists
from pyasynq._broker.doctoring import tasks as doctor_tasks
from pyasynq._broker.doctoring.lists import LIST_PAGE, LIST_WALK, OVERLAP, count_in_list
from pyasynq._broker.doctoring.tasks import Settlement, judge, settle_damaged
from pyasynq._redis.plan import CommandCall, DurableCall, ScriptCall
from pyasynq.doctor import FindingKind
from pyasynq.task import TaskState
from tests.contract.test_doctor import doctor_of, examine
from tests.factories import NOW, Tasks
from tests.run_async import run_async
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

PENDING = "asynq:{default}:pending"
LENGTH = 40

pytestmark = pytest.mark.usefixtures("damage_allowed")


@pytest.fixture
def short_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts see five ids at either end of a list; the others are read in pages of ten."""
    for module in (doctor_lists, doctor_tasks):
        monkeypatch.setattr(module, "LIST_WALK", 5)
    monkeypatch.setattr(doctor_lists, "LIST_PAGE", 10)
    monkeypatch.setattr(doctor_lists, "OVERLAP", 4)


@pytest.fixture
def queue(tasks: Tasks, short_walks: None, no_slow_scripts: None) -> Tasks:
    """Forty waiting tasks, 39 at the beginning of the list."""
    tasks.pending(*(f"{number}" for number in range(LENGTH)))
    return tasks


class Pages:
    """Answers `count_in_list` from a list here, which a change may alter before each page."""

    def __init__(self, ids: list[bytes], change: Callable[[list[bytes], int], object]) -> None:
        self.ids = ids
        self.change = change
        self.read = 0

    def count(self, *wanted: bytes) -> Counter[bytes] | None:
        """Return what the plan does."""
        plan = count_in_list(PENDING, wanted)
        try:
            call = next(plan)
            while True:
                call = plan.send(self._answer(call))
        except StopIteration as stop:
            found: Counter[bytes] | None = stop.value
            return found

    def _answer(self, call: Any) -> Any:
        assert isinstance(call, CommandCall)
        if call.command[0] == "LLEN":
            return len(self.ids)
        self.read += 1
        self.change(self.ids, self.read)
        _, _, first, last = call.command
        return self.ids[int(first) : int(last) + 1]


def ids_of(number: int) -> list[bytes]:
    """Return this many ids."""
    return [b"%d" % one for one in range(number)]


def push_some(ids: list[bytes], page: int) -> None:
    """Enqueue three tasks."""
    ids[:0] = [b"new%d.%d" % (page, one) for one in range(3)]


def take_some(ids: list[bytes], page: int) -> None:
    """Take three tasks."""
    del ids[-3:]


def delete_some(ids: list[bytes], page: int) -> None:
    """Delete two tasks that were read already."""
    del ids[:2]


def do_nothing(ids: list[bytes], page: int) -> None:
    """Leave all as it is."""


@pytest.mark.parametrize("change", [do_nothing, push_some, take_some, delete_some])
def test_each_id_is_counted_once_however_the_list_moves(
    short_walks: None, change: Callable[[list[bytes], int], object]
) -> None:
    """Added at the head, taken from the end, deleted before where it is read."""
    pages = Pages(ids_of(60), change)
    kept = ids_of(60)[20:40]
    assert Counter(kept) == pages.count(*kept)


def test_ids_that_are_listed_twice_are_counted_twice(short_walks: None) -> None:
    """The count is right even if all ids of a page are looked for."""
    ids = [*ids_of(30), b"3", b"28", *[b"ghost"] * 3]
    counts = Pages(ids, do_nothing).count(*ids)
    assert counts == Counter({**dict.fromkeys(ids, 1), b"3": 2, b"28": 2, b"ghost": 3})


def test_a_list_that_ends_before_the_next_page_is_read_to_its_end(short_walks: None) -> None:
    """Workers may take whatever was left of it."""

    def take_the_rest(ids: list[bytes], page: int) -> None:
        del ids[8 if page > 1 else 20 :]

    assert Counter([b"2"]) == Pages(ids_of(20), take_the_rest).count(b"2", b"15")
    assert Counter([b"2"]) == Pages(ids_of(20), lambda ids, page: ids.clear() if page > 1 else None).count(
        b"2"
    )


def test_a_list_that_changes_in_the_middle_is_read_again(short_walks: None) -> None:
    """A list that changes during each of three readings is given up."""

    def shuffle_once(ids: list[bytes], page: int) -> None:
        if page == 2:
            del ids[5:12]

    assert Counter([b"30"]) == Pages(ids_of(60), shuffle_once).count(b"30", b"8")
    pages = Pages(ids_of(600), lambda ids, page: ids.__delitem__(slice(4, 16)))
    assert pages.count(b"30") is None
    assert 6 == pages.read


def test_a_short_list_is_left_to_the_script(short_walks: None) -> None:
    """It sees all of it at one moment."""
    pages = Pages(ids_of(10), do_nothing)
    assert Counter() == pages.count(b"3")
    assert 0 == pages.read


def test_no_call_walks_further_than_is_allowed(tasks: Tasks, redis_client: RedisClient) -> None:
    """With a million ids: 10,000 to a page, and 200,000 for a script, which then judges a single task."""
    plan = judge("default", {b"a": b"", b"b": b""})
    replies: dict[str, Any] = {"LLEN": 1_000_000, "EVALSHA": [[], [], [b""] * 8, b"", b"", 0]}
    read = judged = 0
    call = next(plan)
    while judged < 2:
        assert not isinstance(call, DurableCall)
        if isinstance(call, ScriptCall):
            judged += 1
            assert (LIST_WALK, 4) == (call.args[2], len(call.args) - 5)
            reply = replies["EVALSHA"]
        elif call.command[0] == "LRANGE":
            start, stop = int(call.command[2]), int(call.command[3])
            assert LIST_PAGE == stop - start + 1
            read = max(read, stop + 1)
            reply = [b"%d" % number for number in range(start, min(stop + 1, 1_000_000))]
        else:
            reply = replies["LLEN"]
        if judged < 2:
            call = plan.send(reply)
    assert 1_000_000 <= read < 1_000_000 + LIST_PAGE
    assert 200_000 == 2 * LIST_WALK
    assert LIST_PAGE > 2 * OVERLAP


def test_a_script_sees_the_ends_of_a_list_and_is_told_of_the_middle(queue: Tasks, perform: Perform) -> None:
    """The number of times an id is in the list, as counted."""
    queue.client.linsert(PENDING, "AFTER", "20", "1")
    queue.client.linsert(PENDING, "AFTER", "20", "10")
    suspects = dict.fromkeys((b"39", b"20", b"10", b"1", b"none"), b"")
    facts = {one.id: one for one in perform(judge("default", suspects, now=NOW))}
    places = {task_id: len(one.places) for task_id, one in facts.items()}
    assert {b"39": 1, b"20": 1, b"10": 2, b"1": 2, b"none": 0} == places
    assert [(1, 0), (0, 0)] == [facts[b"20"].listed, facts[b"none"].listed]


@run_async
async def test_what_is_at_the_ends_or_stays_where_it_is_is_repaired(
    redis_client: RedisClient, redis_url: str, queue: Tasks
) -> None:
    """Ghosts at both ends, a wrong state in the middle, and a task from there that is in retry too."""
    redis_client.lpush(PENDING, "ghost")
    redis_client.rpush(PENDING, "ghost", "other")
    redis_client.hset(queue.keys.task("20"), "state", "retry")
    redis_client.zadd(queue.keys.retry, {"18": NOW.seconds})
    async with doctor_of(redis_url) as doctor:
        findings = await doctor.repair(await doctor.examine())
    kinds = {one.kind: one.repaired for one in findings}
    assert {
        FindingKind.GHOST: ("ghost", "other"),
        FindingKind.WRONG_STATE: ("20",),
        FindingKind.IN_TWO_PLACES: ("18",),
    } == kinds
    assert [f"{number}" for number in range(LENGTH)] == queue.ids("pending")
    assert [] == await examine(redis_url)


@run_async
async def test_what_would_have_to_be_taken_from_the_middle_is_found_and_left(
    redis_client: RedisClient, redis_url: str, queue: Tasks
) -> None:
    """Until the queue is shorter."""
    redis_client.linsert(PENDING, "AFTER", "20", "ghost")
    before = snapshot(redis_client)
    async with doctor_of(redis_url) as doctor:
        [finding] = await doctor.repair(await doctor.examine())
        assert (("ghost",), ()) == (finding.subjects, finding.repaired)
        assert before == snapshot(redis_client)
        redis_client.ltrim(PENDING, 15, 22)
        redis_client.delete(
            *(queue.keys.task(f"{n}") for n in range(LENGTH) if f"{n}" not in queue.ids("pending"))
        )
        [finding] = await doctor.repair(await doctor.examine())
    assert ("ghost",) == finding.repaired
    assert "ghost" not in queue.ids("pending")


def test_ids_are_taken_from_the_beginning_of_a_list_first(queue: Tasks, perform: Perform) -> None:
    """So that what stays is what comes first; from the end only what the beginning has not."""
    queue.client.lpush(PENDING, "20", "1")
    queue.client.rpush(PENDING, "20", "39")
    facts = {one.id: one for one in perform(judge("default", {b"20": b"", b"1": b"", b"39": b""}, now=NOW))}
    assert [3, 2, 2] == [len(facts[task_id].places) for task_id in (b"20", b"1", b"39")]
    settlements = [Settlement(one, b"", "pending", PENDING) for one in facts.values()]
    assert [b"20", b"1", b"39"] == perform(settle_damaged("default", settlements, now=NOW))
    left = queue.ids("pending")
    assert Counter(left) == Counter(f"{number}" for number in range(LENGTH))
    assert ["39", "0", "1"] == left[:3]


@pytest.mark.parametrize(("before", "left"), [(9, [b"between", b"x"]), (10, [b"x", b"between"])])
def test_the_first_to_run_of_two_places_at_the_end_stays_unless_the_other_is_too_far(
    redis_client: RedisClient,
    perform: Perform,
    tasks: Tasks,
    short_walks: None,
    before: int,
    left: list[bytes],
) -> None:
    """From the beginning, a script takes out one of the first ten here."""
    tasks.pending("x")
    redis_client.lpush(PENDING, "between", "x", *(f"{number}" for number in range(before)))
    [facts] = perform(judge("default", {b"x": b""}, now=NOW))
    assert 2 == len(facts.places)
    assert [b"x"] == perform(settle_damaged("default", [Settlement(facts, b"", "pending", PENDING)], now=NOW))
    assert left == redis_client.lrange(PENDING, -2, -1)


@run_async
async def test_suspicions_in_a_list_that_never_rests_are_said_to_be_left_out(
    redis_client: RedisClient, redis_url: str, queue: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than guessed at."""
    redis_client.lpush(PENDING, "ghost")
    monkeypatch.setattr(doctor_lists, "_find_continuation", lambda before, page: None)
    async with doctor_of(redis_url) as doctor:
        assert [] == await doctor.examine()
        assert ["1 task of queue default that looks damaged: its lists change too fast"] == doctor.skipped


def test_a_task_in_the_middle_that_has_changed_is_left_alone(queue: Tasks, perform: Perform) -> None:
    """A call that moves it writes into its hash."""
    [facts] = perform(judge("default", {b"20": b""}, now=NOW))
    queue.client.lrem(PENDING, 1, "20")
    queue.put(TaskState.ACTIVE, "20")
    before = snapshot(queue.client)
    settlement = Settlement(facts, b"", "pending", PENDING)
    assert [] == perform(settle_damaged("default", [settlement], now=NOW))
    assert before == snapshot(queue.client)
