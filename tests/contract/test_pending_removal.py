"""Removal of tasks from the middle of a long pending list: exact, in order, in few walks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.inspecting.actions import ArchiveLimits, archive_tasks, delete_tasks
from pyasynq._broker.inspecting.pending_places import NO_HINTS, WALK, PendingPlaces, find_places
from pyasynq._broker.operating.acts import (
    ActStep,
    archive_step,
    delete_step,
    read_restorable,
    set_aside_step,
    undo_step,
)
from pyasynq._redis.plan import Call, ScriptCall
from tests.contract.test_operator_operations import operator, run  # noqa: F401 - a fixture
from tests.factories import NOW, Tasks
from tests.fix_broker import BlockingPerformer
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._broker.inspecting.pending_places import Hints
    from pyasynq._redis.plan import Plan
    from pyasynq.operations import sync as blocking
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

LENGTH = 12_000
LIMITS = ArchiveLimits(9_999, 0)
TASKS = [f"t{number:05}" for number in range(LENGTH)]
DEEP = random.Random(7).sample(TASKS[1_500:-1_500], 150)
"""Tasks that are near neither end of the list."""

pytestmark = pytest.mark.usefixtures("damage_allowed")


class MovingPerformer(BlockingPerformer):
    """Performs a plan, and lets the list move before each of its calls."""

    def __init__(self, client: RedisClient, move: Callable[[], None]) -> None:
        super().__init__(client)
        self._move = move

    def _send(self, call: Call) -> Any:
        self._move()
        return super()._send(call)


def fill(tasks: Tasks, deep: Sequence[str] = DEEP) -> None:
    """Make a long list; only some of its ids, `deep` and every hundredth, have a task."""
    real = {*deep, *TASKS[::100]}
    tasks.pending(*sorted(real))
    pipeline = tasks.client.pipeline(transaction=False)
    pipeline.delete(tasks.keys.pending)
    for first in range(0, LENGTH, 1_000):
        pipeline.lpush(tasks.keys.pending, *TASKS[first : first + 1_000])
    pipeline.execute()


def without(*gone: str) -> list[str]:
    """Return the ids that are left, in the order in which they will be taken."""
    return [task_id for task_id in TASKS if task_id not in set(gone)]


ACTS: dict[str, Callable[[Sequence[str]], Plan[Any]]] = {
    "delete": lambda ids: delete_tasks("default", ids),
    "archive": lambda ids: archive_tasks("default", ids, limits=LIMITS, now=NOW),
}


@pytest.mark.parametrize("act", ACTS)
def test_all_tasks_of_a_call_are_removed_in_one_walk(
    tasks: Tasks, redis_client: RedisClient, act: str
) -> None:
    """One call finds that they are deep, four read the list, and one removes all of them."""
    fill(tasks)
    perform = BlockingPerformer(redis_client)
    moved = perform(ACTS[act]([*DEEP, TASKS[0], "nope"]))
    assert (len(DEEP) + 1, {"nope": "missing"}) == (moved.done, moved.refused)
    assert without(*DEEP, TASKS[0]) == tasks.ids("pending")
    scripts = [call for call in perform.calls if isinstance(call, ScriptCall)]
    assert (2, 4) == (len(scripts), len(perform.calls) - len(scripts))


@pytest.mark.parametrize("number", [1, 3])
def test_few_tasks_are_found_without_reading_the_list(
    tasks: Tasks, redis_client: RedisClient, number: int
) -> None:
    """Redis compares 100,000 ids from each end in a millisecond."""
    fill(tasks)
    perform = BlockingPerformer(redis_client)
    assert number == perform(ACTS["delete"](DEEP[:number])).done
    assert 1 == len(perform.calls)
    assert without(*DEEP[:number]) == tasks.ids("pending")


def surround(tasks: Tasks, *, older: int, newer: int) -> None:
    """Put ids without a task before and behind the tasks that wait."""
    script = """
        for number = 1, tonumber(ARGV[2]) do redis.call(ARGV[1], KEYS[1], ARGV[1] .. number) end
    """
    for push, number in (("RPUSH", older), ("LPUSH", newer)):
        tasks.client.eval(script, 1, tasks.keys.pending, push, number)


@pytest.mark.parametrize(("older", "newer"), [(50, 100_050), (100_050, 50)])
def test_a_task_far_from_one_end_is_found_from_the_other(
    tasks: Tasks, redis_client: RedisClient, older: int, newer: int
) -> None:
    """Fails if the script looks for a task from one end only: then it does not go back to its place."""
    tasks.pending("a", "b", "c")
    surround(tasks, older=older, newer=newer)
    perform = BlockingPerformer(redis_client)
    assert 1 == perform(set_aside_step(ActStep("op", 1), "default", ["b"], "")).done
    assert older + newer + 2 == redis_client.llen(tasks.keys.pending)
    assert 1 == perform(undo_step(ActStep("undo", 1), "default", ["b"], "op")).done
    assert newer + 1 == redis_client.lpos(tasks.keys.pending, "b")


def test_many_tasks_near_both_ends_are_found_without_reading_the_list(
    tasks: Tasks, redis_client: RedisClient
) -> None:
    """Fails if a long list is given up although nothing is missing."""
    ends = [*TASKS[1:4], *TASKS[-4:-1]]
    fill(tasks, ends)
    perform = BlockingPerformer(redis_client)
    assert 6 == perform(ACTS["delete"](ends)).done
    assert 1 == len(perform.calls)
    assert without(*ends) == tasks.ids("pending")


def test_a_list_of_two_thousand_ids_is_looked_through_at_once(
    tasks: Tasks, redis_client: RedisClient
) -> None:
    """Fails if tasks that are not in such a list are looked for in further calls."""
    tasks.pending(*"abcdef")
    redis_client.lrem(tasks.keys.pending, 1, "f")
    surround(tasks, older=997, newer=998)
    perform = BlockingPerformer(redis_client)
    assert 6 == perform(ACTS["delete"](list("abcdef"))).done
    assert 1 == len(perform.calls)
    assert 1_995 == redis_client.llen(tasks.keys.pending)
    assert redis_client.lpos(tasks.keys.pending, "e") is None


def test_many_tasks_are_looked_for_everywhere_if_that_is_asked_for(perform: Perform, tasks: Tasks) -> None:
    """Fails if `WALK` finds only what is near an end: then no task goes back to its place."""
    fill(tasks, [one for deep in DEEP[:5] for one in (deep, *neighbours_of(deep))])
    assert 5 == perform(set_aside_step(ActStep("op", 1), "default", DEEP[:5], "", hints=WALK)).done
    assert without(*DEEP[:5]) == tasks.ids("pending")
    ways = [task_id for _, task_id in perform(read_restorable("op", "default"))]
    assert 5 == perform(undo_step(ActStep("undo", 1), "default", ways, "op")).done
    assert TASKS == tasks.ids("pending")


@pytest.mark.parametrize("seed", range(4))
def test_removal_is_exact_while_the_list_moves(tasks: Tasks, redis_client: RedisClient, seed: int) -> None:
    """Tasks come, are taken, put back and deleted by others between any two calls."""
    fill(tasks)
    drawn = random.Random(seed)
    expected = list(TASKS)
    number = 0

    def move() -> None:
        nonlocal number
        pending = tasks.keys.pending
        new = [f"n{number + at}" for at in range(drawn.randrange(2_000))]
        number += len(new)
        pipeline = redis_client.pipeline(transaction=False)
        pipeline.lpush(pending, *new, "last")
        pipeline.lrem(pending, 1, "last")
        for _ in range(drawn.randrange(100)):
            expected.remove(taken := expected[drawn.randrange(len(expected) // 50) if seed % 2 else 0])
            pipeline.lrem(pending, -1, taken)
        pipeline.rpush(pending, f"b{number}")
        pipeline.execute()
        expected[:] = [f"b{number}", *expected, *new]
        number += 1

    results = [MovingPerformer(redis_client, move)(ACTS["delete"](DEEP[first::3])) for first in range(3)]
    gone = {task_id for task_id in DEEP if task_id in expected}
    done = sum(moved.done for moved in results)
    assert (len(DEEP), {}) == (done, results[0].refused)
    assert [task_id for task_id in expected if task_id not in gone] == tasks.ids("pending")


def test_tasks_that_are_not_in_the_list_are_dealt_with(tasks: Tasks, redis_client: RedisClient) -> None:
    """They say that they are pending, after some damage; each costs one walk through the list."""
    fill(tasks)
    lost = DEEP[:5]
    for task_id in lost:
        redis_client.lrem(tasks.keys.pending, 1, task_id)
    perform = BlockingPerformer(redis_client)
    moved = perform(ACTS["delete"](DEEP[:10]))
    assert (10, {}) == (moved.done, moved.refused)
    assert without(*DEEP[:10]) == tasks.ids("pending")
    assert not any(redis_client.exists(tasks.keys.task(task_id)) for task_id in lost)


def test_tasks_that_are_taken_meanwhile_are_refused(tasks: Tasks, redis_client: RedisClient) -> None:
    """A worker has them; the others are removed."""
    fill(tasks)
    taken = DEEP[:3]
    moves = iter(range(100))

    def move() -> None:
        if next(moves) == 4:
            for task_id in taken:
                redis_client.lrem(tasks.keys.pending, 1, task_id)
                redis_client.hset(tasks.keys.task(task_id), "state", "active")

    moved = MovingPerformer(redis_client, move)(ACTS["delete"](DEEP[:20]))
    assert (17, dict.fromkeys(taken, "active")) == (moved.done, moved.refused)
    assert without(*DEEP[:20]) == tasks.ids("pending")


STEPS: dict[str, Callable[[ActStep, Hints], Plan[Any]]] = {
    "delete": lambda step, hints: delete_step(step, "default", DEEP, "", hints=hints),
    "set_aside": lambda step, hints: set_aside_step(step, "default", DEEP, "pending", hints=hints),
    "archive": lambda step, hints: archive_step(
        step, "default", DEEP, "", limits=LIMITS, now=NOW, hints=hints
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_does_not_find_its_tasks_changes_nothing(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, name: str
) -> None:
    """It may be made again under its number, with hints; then it is counted once."""
    fill(tasks)
    before = snapshot(redis_client)
    wrong = PendingPlaces(TASKS[5], LENGTH, dict.fromkeys(DEEP, 3_000)).hints(DEEP)
    for hints in (NO_HINTS, wrong):
        assert perform(STEPS[name](ActStep("op", 1), hints)).unplaced
        assert before == snapshot(redis_client)
    places = perform(find_places("default", DEEP))
    result = perform(STEPS[name](ActStep("op", 1), places.hints(DEEP)))
    assert (150, {}, False) == (result.done, result.refused, result.unplaced)
    assert without(*DEEP) == tasks.ids("pending")
    assert result._replace(repeated=True) == perform(STEPS[name](ActStep("op", 1), NO_HINTS))


def test_what_was_removed_goes_back_to_its_places(tasks: Tasks, redis_client: RedisClient) -> None:
    """Also tasks that were next to one another, in several steps, as far as their neighbours are there."""
    run_of_ids = TASKS[5_000:5_010]
    deep = [*run_of_ids, *DEEP[:20]]
    fill(tasks, [*TASKS[4_999:5_011], *DEEP, *(t for one in DEEP for t in neighbours_of(one))])
    perform = BlockingPerformer(redis_client)
    places = perform(find_places("default", deep))
    for number, ids in enumerate((deep[:5], deep[5:]), 1):
        hints = places.hints(ids)
        assert (
            len(ids) == perform(set_aside_step(ActStep("op", number), "default", ids, "", hints=hints)).done
        )
        places.remove(ids)
    assert without(*deep) == tasks.ids("pending")
    ways = [task_id for _, task_id in perform(read_restorable("op", "default"))]
    assert len(ways) == perform(undo_step(ActStep("undo", 1), "default", ways, "op")).done
    assert TASKS == tasks.ids("pending")


@pytest.mark.parametrize("neighbour", ["there", "taken"])
def test_tasks_go_back_to_the_front_of_a_long_list(
    tasks: Tasks, redis_client: RedisClient, neighbour: str
) -> None:
    """Without a walk through the list; in front of all, if the task behind which they were is taken."""
    front = TASKS[1:9]
    fill(tasks, TASKS[:10])
    perform = BlockingPerformer(redis_client)
    assert 8 == perform(set_aside_step(ActStep("op", 1), "default", front, "")).done
    expected = TASKS
    if neighbour == "taken":
        redis_client.rpop(tasks.keys.pending)
        redis_client.delete(tasks.keys.task(TASKS[0]))
        expected = TASKS[1:]
    ways = [task_id for _, task_id in perform(read_restorable("op", "default"))]
    assert 8 == perform(undo_step(ActStep("undo", 1), "default", ways, "op")).done
    assert expected == tasks.ids("pending")


def neighbours_of(task_id: str) -> list[str]:
    """Return the ids next to an id."""
    at = TASKS.index(task_id)
    return [TASKS[at - 1], TASKS[at + 1]]


def test_an_undo_ends_its_call_before_the_walks_are_long(
    tasks: Tasks, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first task is put back in any case; the others are left for the next step, and told."""
    monkeypatch.setattr("pyasynq._broker.operating.acts.MOST_WALKED", 2 * LENGTH)
    ids = [TASKS[at] for at in (5_000, 6_000, 7_000, 8_000)]
    fill(tasks, [*ids, *(t for one in ids for t in neighbours_of(one))])
    perform = BlockingPerformer(redis_client)
    assert 2 == perform(set_aside_step(ActStep("op", 1), "default", ids[:2], "")).done
    assert 2 == perform(set_aside_step(ActStep("op", 2), "default", ids[2:], "")).done
    ways = [task_id for _, task_id in perform(read_restorable("op", "default"))]
    first = perform(undo_step(ActStep("undo", 1), "default", ways, "op"))
    assert (2, 2) == (first.done, first.left)
    last = perform(undo_step(ActStep("undo", 2), "default", ways[2:], "op"))
    assert (2, 0) == (last.done, last.left)
    assert TASKS == tasks.ids("pending")


@pytest.mark.parametrize(
    ("older", "newer", "most_walked"),
    [(3_000, 0, 2_000), (0, 20_100, 40_000)],
    ids=["near the left end", "near the right end"],
)
def test_an_undo_counts_only_the_ids_that_redis_walks_past(
    tasks: Tasks,
    redis_client: RedisClient,
    monkeypatch: pytest.MonkeyPatch,
    older: int,
    newer: int,
    most_walked: int,
) -> None:
    """Fails if a task near an end of the list counts as much as one in the middle."""
    monkeypatch.setattr("pyasynq._broker.operating.acts.MOST_WALKED", most_walked)
    tasks.pending("a", "b", "c")
    surround(tasks, older=older, newer=newer)
    perform = BlockingPerformer(redis_client)
    assert 2 == perform(set_aside_step(ActStep("op", 1), "default", ["b", "c"], "")).done
    ways = [task_id for _, task_id in perform(read_restorable("op", "default"))]
    undone = perform(undo_step(ActStep("undo", 1), "default", ways, "op"))
    assert (2, 0) == (undone.done, undone.left)
    assert ["a", "b", "c"] == [one for one in tasks.ids("pending") if len(one) == 1]


def test_an_undo_puts_back_its_first_task_however_long_the_walk(
    tasks: Tasks, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if an undo may leave all of its tasks to the next step, for ever."""
    monkeypatch.setattr("pyasynq._broker.operating.acts.MOST_WALKED", 1)
    tasks.pending("a", "b", "c")
    perform = BlockingPerformer(redis_client)
    assert 2 == perform(set_aside_step(ActStep("op", 1), "default", ["a", "b"], "")).done
    undone = perform(undo_step(ActStep("undo", 1), "default", ["a", "b"], "op"))
    assert (1, 1) == (undone.done, undone.left)
    assert ["a", "c"] == tasks.ids("pending")


def test_a_task_goes_back_although_its_neighbour_has_lost_its_place(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Fails if a task counts as put back when there was no list to put it into."""
    tasks.pending("a", "b")
    assert 1 == perform(set_aside_step(ActStep("op", 1), "default", ["b"], "")).done
    redis_client.delete(tasks.keys.pending)
    assert 1 == perform(undo_step(ActStep("undo", 1), "default", ["b"], "op")).done
    assert ["b"] == tasks.ids("pending")


def test_an_operation_deletes_deep_tasks_and_undoes_it(
    tasks: Tasks,
    operator: blocking.Operator,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads the list once, and each step takes up where the one before has ended."""
    monkeypatch.setattr("pyasynq._broker.operating.acts.MOST_WALKED", LENGTH)
    deep = [task_id for task_id in DEEP if task_id[-2:] not in {"01", "99", "00"}]
    fill(tasks, [*deep, *(t for one in deep for t in neighbours_of(one))])
    deleted = run(operator, "delete", *deep, "nope")
    assert (len(deep), 1) == (deleted.done, deleted.skipped)
    assert without(*deep) == tasks.ids("pending")
    undone = operator.run_operation(operator.undo_operation(deleted.operation).operation)
    assert (len(deep), 0) == (undone.done, undone.skipped)
    assert TASKS == tasks.ids("pending")


def test_a_call_takes_as_many_tasks_as_it_can_walk_to() -> None:
    """10 ns for each id on the way from the nearer end; one task is taken from anywhere."""
    places = PendingPlaces("", 10**6, {f"t{place}": place for place in range(0, 10**6, 1_000)})
    ids = [f"t{place}" for place in range(0, 10**6, 1_000)]
    assert [51, 151] == [places.fit(ids[500:]), places.fit(ids)]
    assert 201 == PendingPlaces().fit(["x"] * 1_000)
    huge = PendingPlaces("", 10**8, {f"t{at}": 10**7 * 4 + at for at in range(1_000)})
    assert 50 == huge.fit([f"t{at}" for at in range(1_000)])


def test_places_follow_what_is_removed() -> None:
    """Tasks further right are nearer to the anchor by one for each."""
    places = PendingPlaces("a", 100, {"x": 10, "y": 20, "z": 30})
    assert ("a", "10 20 - 30") == places.hints(["x", "y", "nope", "z"])
    places.remove(["x", "nope"])
    assert ("a", "- 19 29") == places.hints(["x", "y", "z"])
    assert ["z", "y"] == PendingPlaces("a", 35, {"y": 20, "z": 30}).order(["y", "z"])
    assert NO_HINTS == places.hints(["nope"])
