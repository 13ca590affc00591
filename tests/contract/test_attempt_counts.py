"""The statistics of a queue in Redis: what a call adds, what they take, and what survives damage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.attempt_counts import count_attempts
from pyasynq._broker.inspecting.attempt_counts import make_counts, make_series, read_records
from pyasynq._clock import Instant
from pyasynq._redis.plan import Replay
from pyasynq._wire.attempt_counts import (
    BUCKETS,
    DAYS,
    LEVELS,
    MAX_COUNTED_TYPES,
    MINUTES,
    RUN_BUCKETS,
    SUMMARY_SIZE,
    TEN_MINUTES,
    VECTOR_SIZE,
    Level,
)
from pyasynq.errors import RedisReplyError
from pyasynq.telemetry import AttemptCounts
from tests.factories import NOW
from tests.fix_broker import BlockingPerformer
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.factories import Tasks
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

ONES = [1] * VECTOR_SIZE
KIB = 1_024


def read(perform: Perform, level: Level, now: Instant = NOW) -> dict[str, list[tuple[int, list[int]]]]:
    """Return what is kept of the chunk of a time, with slots as seconds from its start."""
    start = level.start(now.seconds)
    records = perform(read_records("default", level, start))
    return {name: [(second - start, vector) for second, vector in slots] for name, slots in records.items()}


def key_of(tasks: Tasks, level: Level) -> str:
    """Return the key of the present."""
    return tasks.keys.attempt_counts(level.name, level.start(NOW.seconds))


def test_a_call_adds_to_the_present_minute_ten_minutes_and_day(perform: Perform) -> None:
    """Minutes keep no histograms. Fails if the script no longer writes one of the three."""
    vector = list(range(1, VECTOR_SIZE + 1))
    perform(count_attempts("default", {"email": vector}, now=NOW))
    for level in LEVELS:
        slot = level.slot_number(NOW.seconds) * level.slot
        assert {"email": [(slot, vector[: level.size])]} == read(perform, level)


def test_counts_of_one_slot_are_added_up(perform: Perform) -> None:
    """Counts are added by type, even if the sum has more digits."""
    perform(count_attempts("default", {"a": [100, 0, 7], "b": [5]}, now=NOW))
    perform(count_attempts("default", {"a": [100, 2**40]}, now=NOW.plus(1)))
    [(_, a)] = read(perform, DAYS)["a"]
    [(_, b)] = read(perform, DAYS)["b"]
    assert ([200, 2**40, 7], 5) == (a[:3], b[0])


def test_each_key_lapses_some_time_after_the_last_slot_that_it_has(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Fails if the script no longer sets the TTL."""
    perform(count_attempts("default", {"a": [1]}, now=NOW))
    for level in LEVELS:
        left = redis_client.ttl(key_of(tasks, level))
        assert level.lifetime(NOW.seconds) - 60 < left <= level.lifetime(NOW.seconds)
        assert level.keep < level.lifetime(NOW.seconds) <= level.keep + level.chunk


def test_a_new_slot_closes_the_record_before_it(perform: Perform) -> None:
    """Counters and sums stay exact; each bucket is at most 6 % away."""
    buckets = [number**3 for number in range(2 * BUCKETS)]
    vector = [*range(1_000, 1_000 + SUMMARY_SIZE), *buckets]
    perform(count_attempts("default", {"a": vector}, now=NOW))
    perform(count_attempts("default", {"a": [7]}, now=NOW.plus(600)))
    [(first, closed), (second, opened)] = read(perform, TEN_MINUTES)["a"]
    assert 600 == second - first
    assert (7, 0) == (opened[0], sum(opened[1:]))
    assert vector[:SUMMARY_SIZE] == closed[:SUMMARY_SIZE]
    assert buckets == pytest.approx(closed[SUMMARY_SIZE:], rel=0.0625)


def test_many_slots_follow_one_another(perform: Perform) -> None:
    """All of an hour's minutes; each has its own counts."""
    start = Instant(MINUTES.start(NOW.seconds))
    for minute in range(60):
        perform(count_attempts("default", {"a": [minute + 1]}, now=start.plus(60 * minute)))
    expected = [(60 * minute, minute + 1) for minute in range(60)]
    assert expected == [(slot, vector[0]) for slot, vector in read(perform, MINUTES, start)["a"]]


def test_counts_that_come_late_are_added_to_the_newest_slot(perform: Perform) -> None:
    """Two workers do not flush in the order of their clocks; nothing that is closed is written again."""
    perform(count_attempts("default", {"a": [1]}, now=NOW.plus(60)))
    perform(count_attempts("default", {"a": [2]}, now=NOW))
    assert [3] == [vector[0] for _, vector in read(perform, MINUTES)["a"]]


def test_types_beyond_the_first_fifty_are_counted_together(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Types that are there go on to be counted alone; the others are `_other` from their first call on."""
    perform(
        count_attempts("default", {f"t{number}": [1] for number in range(MAX_COUNTED_TYPES - 1)}, now=NOW)
    )
    perform(count_attempts("default", {"x": [1], "y": [10], "z": [100], "t0": [1]}, now=NOW))
    for level in LEVELS:
        found = read(perform, level)
        assert MAX_COUNTED_TYPES + 1 == redis_client.hlen(key_of(tasks, level))
        assert (2, 1, 110) == tuple(found[name][0][1][0] for name in ("t0", "x", "_other"))


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize(
    "damage",
    [b"", b"x", b"\xff\xff", b"\x00\x09abc", b"\x00\x03", b"\x00\x03\x00", b"\x00\x02\x05\x01", bytes(300)],
)
def test_a_value_that_is_damaged_does_not_stop_the_counting(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, damage: bytes
) -> None:
    """A damaged record counts as nothing; what is counted after it is there."""
    for level in LEVELS:
        redis_client.hset(key_of(tasks, level), "a", damage)
    perform(count_attempts("default", {"a": ONES}, now=NOW))
    perform(count_attempts("default", {"a": ONES}, now=NOW))
    for level in LEVELS:
        assert 2 == read(perform, level)["a"][-1][1][0]


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_a_key_of_the_wrong_type_changes_nothing(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, level: Level
) -> None:
    """Fails if the script no longer looks at all keys before it writes."""
    redis_client.set(key_of(tasks, level), "text")
    before = snapshot(redis_client)
    with pytest.raises(RedisReplyError):
        perform(count_attempts("default", {"a": [1]}, now=NOW))
    assert before == snapshot(redis_client)


def test_the_call_is_never_sent_again() -> None:
    """A lost reply may lose a count; it doubles none."""
    call = next(count_attempts("default", {"a": [1]}, now=NOW))
    assert Replay.NEVER is call.replay


def fill_history(performer: BlockingPerformer, types: Sequence[str], vector: Sequence[int]) -> Instant:
    """Count in each slot that is kept of all levels, up to now; return now."""
    counts = dict.fromkeys(types, vector)
    moments: set[int] = set()
    for level in LEVELS:
        # A key goes at once, `keep` after the last second of its chunk.
        oldest = level.start(NOW.seconds - level.keep - level.chunk) + level.chunk
        moments.update(range(oldest, NOW.seconds, level.slot))
    for second in sorted(moments):
        performer(count_attempts("default", counts, now=Instant(second)))
    return NOW


def memory_of_history(client: RedisClient) -> int:
    """Return the bytes that the keys take which have not lapsed by now."""
    total = 0
    for level in LEVELS:
        for key in client.scan_iter(match=f"*:x:stats:{level.name}:*", count=1_000):
            start = int(key.rpartition(b":")[2])
            if start + level.chunk + level.keep > NOW.seconds:
                total += client.memory_usage(key, samples=0)
    return total


BUSY = [1_000_000, 50_000, 2_000, 0, 0, 1_000, 10, 1, 10**9, 10**10, *[70_000] * (2 * BUCKETS)]
"""A vector with each bucket full, which is the worst there is."""


@pytest.mark.single_server("memory is asked of one server")
def test_the_whole_history_of_a_busy_type_takes_60_kib_at_most(redis_client: RedisClient) -> None:
    """Although each bucket has counts at all times, and no count is small."""
    fill_history(BlockingPerformer(redis_client), ["email:deliver"], BUSY)
    assert memory_of_history(redis_client) <= 60 * KIB


@pytest.mark.long
@pytest.mark.single_server("memory is asked of one server")
def test_the_whole_history_of_a_queue_with_200_types_takes_4_mib_at_most(redis_client: RedisClient) -> None:
    """50 of them have counts of their own."""
    types = [f"service:{number:03}:handle" for number in range(MAX_COUNTED_TYPES)]
    fill_history(BlockingPerformer(redis_client), [*types, "_other"], BUSY)
    assert memory_of_history(redis_client) <= 4 * KIB * KIB


def test_series_have_a_point_for_each_slot_with_attempts(perform: Perform) -> None:
    """By type, and from the slot on in which the time begins."""
    start = Instant(TEN_MINUTES.start(NOW.seconds))
    for at, number in ((0, 1), (600, 2), (1_800, 3)):
        perform(count_attempts("default", {"b": [number], "a": [0, number]}, now=start.plus(at)))
    chunks = [perform(read_records("default", TEN_MINUTES, start.seconds))]
    [a, b] = make_series(
        "default", TEN_MINUTES, chunks, since=start.seconds + 700, until=start.seconds + 1_801
    )
    assert (("default", "a", 600), "b") == ((a.queue, a.type, a.step), b.type)
    moment = datetime.fromtimestamp(start.seconds, UTC)
    assert [moment + timedelta(seconds=600), moment + timedelta(seconds=1_800)] == [
        one.at for one in b.points
    ]
    assert ([2, 3], 5) == ([one.counts.succeeded for one in b.points], b.total.succeeded)
    assert [2, 3] == [one.counts.failed for one in a.points]


def test_a_series_can_be_read_of_some_types_alone(perform: Perform) -> None:
    """One that has no counts is left out."""
    perform(count_attempts("default", {"a": [1], "b": [1], "c": [1]}, now=NOW))
    found = perform(read_records("default", DAYS, DAYS.start(NOW.seconds), ["c", "a", "none"]))
    assert {"a", "c"} == found.keys()


def test_counts_have_names_and_seconds() -> None:
    """The numbers are those of the vector; milliseconds become seconds."""
    counts = make_counts([1, 2, 3, 4, 5, 6, 7, 8, 1_500, 500, *[0] * (VECTOR_SIZE - SUMMARY_SIZE)])
    assert AttemptCounts(1, 2, 3, 4, 5, 6, 7, 8, counts.run, counts.wait) == counts
    assert (1.5, 0.5, 5, 15) == (counts.run.seconds, counts.wait.seconds, counts.failed, counts.ended)
    vector = [0] * VECTOR_SIZE
    vector[RUN_BUCKETS] = 9
    assert 9 == make_counts(vector).run.counts[0]
