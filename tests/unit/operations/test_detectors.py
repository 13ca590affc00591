from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pyasynq._broker.inspecting.vitals import QueueVitals, RedisHealth
from pyasynq._broker.operating.snoozes import FindingSnooze
from pyasynq.info import QueueInfo, ServerInfo
from pyasynq.limits import QueueLimits
from pyasynq.operations import Thresholds, find_attention
from pyasynq.operations.detectors import DETECTORS
from pyasynq.operations.detectors.common import quote_value
from pyasynq.operations.query import parse_query
from pyasynq.operations.snapshot import Activity, PoisonCount, QueueSnapshot, Snapshot, summarize_activity
from pyasynq.task import TaskState
from pyasynq.telemetry import AttemptCounts, AttemptSeries, SeriesPoint

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
SOUND = QueueVitals(0, 0, 0, 0, None, 0, None, None, 0, 0, 0, 0, None)
HOSTILE = 'que"ue\\ \x1b]52\n:*,()'


def info(**fields: Any) -> QueueInfo:
    """Return the counts of a queue that is empty except for these."""
    values: dict[str, Any] = {
        "queue": "mail",
        "paused": False,
        "latency": timedelta(seconds=fields.pop("latency", 0)),
        "timestamp": NOW,
        **dict.fromkeys(("pending", "active", "scheduled", "retry", "archived", "completed"), 0),
        **dict.fromkeys(("aggregating", "groups", "processed", "failed"), 0),
        **dict.fromkeys(("processed_total", "failed_total"), 0),
    }
    return QueueInfo(**values | fields)


def server(server_id: str = "s", **fields: Any) -> ServerInfo:
    """Return a server that takes tasks from `mail`."""
    values: dict[str, Any] = {
        "id": server_id,
        "host": "h",
        "pid": 7,
        "status": "active",
        "concurrency": 4,
        "queues": {"mail": 1},
        "strict_priority": False,
        "started": NOW,
        "active_workers": (),
        "engine": "pyasynq",
    }
    return ServerInfo(**values | fields)


def snapshot(
    of: QueueInfo | None = None,
    *,
    vitals: QueueVitals | None = SOUND,
    servers: tuple[ServerInfo, ...] = (server(),),
    activity: dict[str, Activity] | None = None,
    redis: tuple[RedisHealth, ...] = (),
    at: datetime = NOW,
    **fields: Any,
) -> Snapshot:
    """Return a snapshot of one queue."""
    counts = of or info()
    queue = QueueSnapshot(counts, vitals, activity or {}, **fields)
    return Snapshot(at, 0.01, {counts.queue: queue}, servers=servers, redis=redis)


def names(one: Snapshot, earlier: Snapshot | None = None, **thresholds: Any) -> list[str]:
    """Return the detectors that find something."""
    return [
        finding.detector for finding in find_attention(one, earlier, (), Thresholds(**thresholds)).findings
    ]


def activity(recent: dict[str, Any], before: dict[str, Any] | None = None, seconds: float = 600) -> Any:
    """Return the attempts of one type."""
    return {"report": Activity(AttemptCounts(**recent), AttemptCounts(**before or {}), seconds)}


ALL_WRONG = replace(
    snapshot(
        info(
            queue=HOSTILE,
            pending=5_000,
            latency=2_000,
            archived=9_500,
            limits=QueueLimits(max_run=1),
        ),
        vitals=QueueVitals(3, 3, 2, 1, 1, 1, 1, None, 2, 2, 9, 0, 10.0),
        servers=(
            server(queues={HOSTILE: 1}, engine=""),
            server("b", queues={HOSTILE: 1}, loop_blocked=timedelta(seconds=9)),
        ),
        activity=activity({"succeeded": 90, "retried": 40}, {"succeeded": 99, "archived": 1}),
        redis=(RedisHealth("allkeys-lru", 900, 1_000, aof=False, replicas=(("10.0.0.2:6379", None),)),),
        poison=PoisonCount(100, is_whole=False),
        last_ticks={"entry": int(NOW.timestamp()) - 60},
    ),
    wants_durability=True,
)


def test_a_sound_snapshot_has_no_findings() -> None:
    """An empty Redis, a queue without anything, and one whose tasks run."""
    assert [] == names(Snapshot(NOW, 0.0))
    assert [] == names(snapshot(servers=()))
    assert [] == names(snapshot(info(pending=500, active=40, latency=20, processed=900)))
    assert [] == names(snapshot(vitals=None)), "signs that could not be read"


def test_there_are_sixteen_detectors() -> None:
    """Their names are part of the interface: of snoozes, metrics and pages."""
    assert 16 == len(DETECTORS)


def test_each_finding_has_a_query_that_can_be_read_and_a_sentence_that_can_be_shown() -> None:
    """Names of queues and types come from other programs: they are quoted in queries, and made visible."""
    attention = find_attention(ALL_WRONG, None)
    found = {finding.detector for finding in attention.findings}
    assert set(DETECTORS) - found == {
        "no_consumers",
        "paused_long",
        "retry_storm",
        "consumers_dropped",
    }
    for finding in attention.findings:
        assert finding.sentence.endswith("."), finding
        assert finding.sentence.isprintable(), finding
        assert finding.action.label
        if finding.query:
            query = parse_query(finding.query)
            assert any(query.places(state, HOSTILE) for state in query.states), finding.query
            assert not any(query.places(state, "other") for state in query.states), finding.query


def test_findings_come_by_severity_and_have_ids_of_their_own() -> None:
    """A snooze of one leaves the others; detectors may find several things in a queue."""
    attention = find_attention(ALL_WRONG, None)
    severities = [finding.severity for finding in attention.findings]
    assert sorted(severities, reverse=True) == severities
    ids = [finding.id for finding in attention.findings]
    assert len(set(ids)) == len(ids)
    snoozes = [FindingSnooze(ids[0], NOW, "known", "mira")]
    snoozed = find_attention(ALL_WRONG, None, snoozes)
    assert (ids[0], "known") == (snoozed.snoozed[0].id, snoozed.snoozed[0].snooze and "known")
    assert ids[1:] == [finding.id for finding in snoozed.findings]


@pytest.mark.parametrize(
    ("detector", "just_not", "just"),
    [
        ("no_consumers", {"latency": 29.9}, {"latency": 30}),
        ("no_consumers", {"pending": 0, "latency": 90}, {"latency": 90}),
        ("no_consumers", {"paused": True, "latency": 90}, {"latency": 90}),
    ],
)
def test_a_queue_without_servers_is_found_when_its_tasks_have_waited(
    detector: str, just_not: dict[str, Any], just: dict[str, Any]
) -> None:
    """A paused queue is not waited for by anybody."""
    assert [] == names(snapshot(info(**{"pending": 1} | just_not), servers=()))
    assert [detector] == names(snapshot(info(**{"pending": 1} | just), servers=()))
    stopped = (server(status="stopped"),)
    assert [detector] == names(snapshot(info(**{"pending": 1} | just), servers=stopped))


def test_a_queues_own_objective_overrides_the_five_minutes() -> None:
    """Four times the objective is severe."""
    late = info(pending=2, latency=301)
    assert ["pending_age"] == names(snapshot(late))
    assert [] == names(snapshot(late, vitals=SOUND._replace(wait_objective=400.0)))
    [finding] = find_attention(snapshot(late, vitals=SOUND._replace(wait_objective=60.0))).findings
    assert (4, "set_queue_limits") == (
        finding.severity,
        find_attention(snapshot(replace(late, limits=QueueLimits(rate=1.0)))).findings[0].action.verb,
    )
    assert "" == finding.action.verb


def test_a_backlog_takes_an_hour_at_the_present_rate() -> None:
    """A rate of a moment says nothing: a server that has just started is not judged."""
    many = info(pending=6_001)
    assert ["depth_anomaly"] == names(snapshot(many, activity=activity({"succeeded": 1_000})))
    assert [] == names(snapshot(replace(many, pending=5_999), activity=activity({"succeeded": 1_000})))
    assert [] == names(snapshot(many, activity=activity({"succeeded": 1}, seconds=119)))
    assert [] == names(snapshot(info(pending=999), activity=activity({"succeeded": 1})))
    assert [] == names(snapshot(many))


def test_a_storm_needs_more_retries_than_successes() -> None:
    """A paused queue makes no attempts, so its storm is over."""
    stormy = activity({"succeeded": 99, "retried": 100})
    assert ["retry_storm"] == names(snapshot(activity=stormy))
    assert [] == names(snapshot(info(paused=True), activity=stormy))
    assert [] == names(snapshot(activity=activity({"succeeded": 101, "retried": 100})))
    assert [] == names(snapshot(activity=activity({"succeeded": 9, "retried": 99})))


@pytest.mark.parametrize(
    ("recent", "before", "is_spike"),
    [
        ({"succeeded": 80, "archived": 20}, {"succeeded": 94, "archived": 6}, True),
        ({"succeeded": 80, "archived": 20}, {"succeeded": 93, "archived": 7}, False),
        ({"succeeded": 81, "archived": 19}, {"succeeded": 100}, False),
        ({"succeeded": 81, "retried": 20}, {"succeeded": 100}, False),
        ({"succeeded": 80, "retried": 20}, {"succeeded": 49}, False),
        ({"succeeded": 80, "retried": 20}, {}, False),
    ],
)
def test_a_spike_is_compared_with_the_hours_before(
    recent: dict[str, int], before: dict[str, int], is_spike: bool
) -> None:
    """Few failures, a small share, and a type without a history do not count."""
    assert (["fail_spike"] if is_spike else []) == names(snapshot(activity=activity(recent, before)))


def test_a_pause_that_ends_by_itself_is_not_found() -> None:
    """Nor is one of a queue without pending tasks, or one that began a moment ago."""
    paused = info(paused=True, pending=1)
    since = int(NOW.timestamp()) - 3_600
    old = SOUND._replace(paused_since=since)
    assert ["paused_long"] == names(snapshot(paused, vitals=old))
    assert [] == names(snapshot(paused, vitals=SOUND._replace(paused_since=since + 1)))
    assert [] == names(snapshot(replace(paused, paused_until=NOW), vitals=old))
    assert [] == names(snapshot(replace(paused, pending=0), vitals=old))


def test_half_of_the_servers_count_as_dropped() -> None:
    """One more or less of many is a deployment, and a queue that is gone needs none."""
    three = tuple(server(f"{number}") for number in range(3))
    earlier = replace(snapshot(servers=(*three, server("last"))), at=NOW - timedelta(minutes=5))
    assert [] == names(snapshot(servers=three), earlier)
    assert ["consumers_dropped"] == names(snapshot(servers=three[:2]), earlier)
    [finding] = find_attention(snapshot(servers=()), earlier).findings
    assert (5, "0 of 4 servers that took tasks from mail 5 min ago are left.") == (
        finding.severity,
        finding.sentence,
    )
    assert [] == names(replace(snapshot(servers=()), queues={}), earlier)


def test_a_short_block_of_an_event_loop_is_not_found() -> None:
    """The finding names the server, and is for users who see one of its queues."""
    blocked = server(loop_blocked=timedelta(seconds=5))
    [finding] = find_attention(snapshot(servers=(blocked,))).findings
    assert ("loop_blocked", "s", ("mail",)) == (finding.detector, finding.subject, finding.queues)
    assert {"server_id": "s"} == finding.action.arguments
    assert [] == names(snapshot(servers=(server(loop_blocked=timedelta(seconds=4)),)))


def test_a_limit_that_a_server_declares_is_ignored_by_servers_in_go() -> None:
    """A server in Go on a queue without limits is none."""
    limits = {"mail": QueueLimits(max_run=1)}
    foreign = server("go", engine="")
    assert ["limits_ignored"] == names(snapshot(servers=(server(limits=limits), foreign)))
    assert [] == names(snapshot(servers=(server(), foreign)))


def test_schedules_are_missed_only_if_no_scheduler_runs() -> None:
    """Ticks of more than a week ago, or of a clock that was ahead, do not count."""
    second = int(NOW.timestamp())
    assert ["scheduler_gone"] == names(snapshot(last_ticks={"a": second - 7 * 86_400}))
    assert [] == names(snapshot(last_ticks={"a": second - 7 * 86_400 - 1, "b": second + 60}))


@pytest.mark.parametrize(
    ("health", "subjects"),
    [
        (RedisHealth("noeviction", 800, 1_000, aof=True, replicas=()), []),
        (RedisHealth("noeviction", 801, 1_000, aof=True, replicas=()), ["memory"]),
        (RedisHealth("allkeys-lru", 100, 0, aof=True, replicas=()), []),
        (RedisHealth("allkeys-lru", 100, 1_000, aof=True, replicas=()), ["eviction"]),
        (RedisHealth("", 100, 1_000, aof=True, replicas=()), []),
        (RedisHealth("noeviction", 0, 0, aof=False, replicas=()), ["aof"]),
        (RedisHealth("noeviction", 0, 0, aof=True, replicas=(("a:1", 10), ("b:1", 11))), ["replica b:1"]),
    ],
)
def test_dangers_of_redis_are_told_apart(health: RedisHealth, subjects: list[str]) -> None:
    """Without `maxmemory` nothing is evicted; without durable tasks the append-only file is a choice."""
    one = replace(snapshot(redis=(health,)), wants_durability=True)
    assert subjects == [finding.subject for finding in find_attention(one).findings]
    if subjects == ["aof"]:
        assert [] == names(snapshot(redis=(health,)))


@pytest.mark.parametrize(
    ("count", "begin"),
    [
        (PoisonCount(1), "1 task of mail was archived because its workers"),
        (PoisonCount(1, is_whole=False), "At least 1 task of mail was archived because its workers"),
        (PoisonCount(100, is_whole=False), "At least 100 tasks of mail were archived because their workers"),
    ],
)
def test_poison_tasks_are_at_least_those_that_were_found(count: PoisonCount, begin: str) -> None:
    """A sweep does not look at every archived task."""
    [finding] = find_attention(snapshot(info(queue="mail"), poison=count)).findings
    assert finding.sentence == f"{begin} crashed or gave no sign."


@pytest.mark.parametrize(("seen", "begin"), [(3, "2 groups"), (2, "At least 2 groups")])
def test_late_groups_are_at_least_those_that_were_looked_at(seen: int, begin: str) -> None:
    """A sweep looks at some groups of each queue."""
    vitals = SOUND._replace(seen_groups=seen, late_groups=2, grouped=9)
    [finding] = find_attention(snapshot(info(queue="mail", groups=3), vitals=vitals)).findings
    assert finding.sentence.startswith(f"{begin} of mail with 9 tasks are not aggregated")


def test_points_of_the_last_ten_minutes_are_recent() -> None:
    """The time since the first of them gives the rate."""
    points = [
        SeriesPoint(NOW - timedelta(minutes=minutes), AttemptCounts(succeeded=succeeded))
        for minutes, succeeded in ((90, 5), (10, 7), (9, 2), (0, 1))
    ]
    found = summarize_activity([AttemptSeries("mail", "report", 60, points)], NOW)
    recent, before, seconds = found["mail"]["report"]
    assert (3, 12, 540.0) == (recent.succeeded, before.succeeded, seconds)


@pytest.mark.parametrize("text", ["mail", "a.b-c_1", "mail-*", "with space", 'q"\\', "ÄÖ", "a:b,c", HOSTILE])
def test_a_quoted_value_is_read_back(text: str) -> None:
    """A star in a name is not a pattern, and a plain word needs no quotes."""
    query = parse_query(f"queue:{quote_value(text)}")
    assert query.places(TaskState.PENDING, text)
    assert not query.places(TaskState.PENDING, text.replace("*", "x") + "x")
    assert ("mail", '"mail-*"') == (quote_value("mail"), quote_value("mail-*"))


def test_the_page_lists_every_detector_in_its_order() -> None:
    """Each row names a detector, and says the severities that its findings can have."""
    page = Path(__file__).parents[3] / "docs" / "attention.md"
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (\d.*) \| .+ \|$", page.read_text("utf-8"), re.MULTILINE)
    severities = {name: [int(digit) for digit in re.findall(r"\d", cell)] for name, cell in rows}
    assert {name: detector.most_severe for name, detector in DETECTORS.items()} == {
        name: max(numbers) for name, numbers in severities.items()
    }
    assert list(DETECTORS) == list(severities)
    for finding in find_attention(ALL_WRONG, None).findings:
        numbers = severities[finding.detector]
        assert min(numbers) <= finding.severity <= max(numbers), finding


def test_of_very_many_findings_the_most_severe_ones_are_kept() -> None:
    """In the order that they would have among all; detectors of milder ones need not run."""
    late = SOUND._replace(late_scheduled=1, first_scheduled=1, late_groups=1, grouped=1)
    whole = snapshot(info(pending=1, latency=60), vitals=late, servers=())
    [one] = whole.queues.values()
    queues = {
        name: replace(one, info=replace(one.info, queue=name, archived=9_999, groups=1))
        for name in (f"q{number:04}" for number in range(900))
    }
    found = find_attention(replace(whole, queues=queues)).findings

    assert ["no_consumers"] * 900 + ["past_due"] * 100 == [finding.detector for finding in found]
    assert [*queues, *list(queues)[:100]] == [finding.queue for finding in found]
    few = find_attention(replace(whole, queues=dict(list(queues.items())[:300]))).findings
    assert {"no_consumers": 300, "past_due": 300, "group_stall": 300, "archive_full": 100} == Counter(
        finding.detector for finding in few
    )
