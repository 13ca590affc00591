"""A query finds the tasks that a test of every single task finds, whatever Redis leaves out on the way."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyasynq import sync
from pyasynq._broker.servers import write_server_state
from pyasynq._error_signature import error_signature, signature_id
from pyasynq._wire.messages import ServerInfo, WorkerInfo
from pyasynq.errors import QueryError
from pyasynq.operations.query import Place, parse_query
from pyasynq.operations.query._facts import match_facts
from pyasynq.operations.selection import Budget
from pyasynq.operations.sync.select import Selector
from pyasynq.task import TaskState
from tests.factories import NOW, Tasks
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.operations.query import Query
    from tests.invariants import RedisClient

QUEUES = ("default", "mail-1", "mail-2")
TYPES = ("email:deliver", "email:bulk", "image", "tim\N{LATIN SMALL LETTER E WITH ACUTE}out")
ERRORS = ("", "boom: timeout after 30 s", "refused 'x'", "boom")
PAYLOADS = (
    b"",
    b"\xff\x00",
    b'{"user": {"id": 42, "name": "Ann"}, "tags": ["red", "blue"]}',
    b'{"user": {"id": 9007199254740993}, "tags": []}',
    b'{"user": {"id": "42"}}',
    b"timeout",
)
AGES = (10, 600, 4_000, 90_000)
SIGNATURE = signature_id(error_signature(ERRORS[1]))


class _Clock:
    def now(self) -> Any:
        return NOW

    redis_now = now

    def monotonic(self) -> float:
        return 0.0


def put_world(client: RedisClient) -> None:
    """Put tasks of many kinds into every state of some queues."""
    varied = itertools.cycle(itertools.product(TYPES, ERRORS, PAYLOADS, AGES))
    for queue, state in itertools.product(QUEUES, TaskState):
        tasks = Tasks(client, queue)
        for number in range(12):
            kind, error, payload, age = next(varied)
            for _ in range(number):
                next(varied)
            then = NOW.seconds - age
            ahead = state in {TaskState.SCHEDULED, TaskState.RETRY} and number % 3
            fields: dict[str, Any] = {
                "type": kind,
                "error_msg": error,
                "payload": payload,
                "retried": number % 4,
                "retry": 25 if number % 3 else 2,
                "headers": {"tenant": "acme" if number % 2 else "umbrella", "n": str(number)},
                "last_failed_at": then if error else 0,
            }
            extra: dict[str, Any] = {"x:crashes": 2} if number % 5 == 0 else {}
            if state is TaskState.COMPLETED:
                fields |= {"completed_at": then, "retention": 100_000 + age}
                extra["result"] = payload
                score = then + 100_000 + age
            else:
                score = then + 2 * age if ahead else then
            if number % 4 == 0:
                fields["unique_key"] = f"{tasks.keys.own_unique_prefix}{state}-{number}"
            group = ("g1", "g2", "digest")[number % 3] if state is TaskState.AGGREGATING else ""
            tasks.put(state, f"{state}-{number}", score=score, extra=extra, group=group, **fields)
            if state is TaskState.PENDING:
                client.hset(tasks.keys.task(f"{state}-{number}"), "pending_since", f"{then}000000000")
            if state is TaskState.ACTIVE and number % 3:
                client.zadd(tasks.keys.lease, {f"{state}-{number}": NOW.seconds + 30})


def put_server(client: RedisClient) -> None:
    """Let a server tell of some of the active tasks."""
    workers = [
        WorkerInfo(
            host="h",
            pid=1,
            server_id="5c1d",
            task_id=f"active-{number}",
            task_type="t",
            task_payload=b"",
            queue=queue,
            start_time=NOW.plus(-100 * number - 1).to_datetime(),
            deadline=NOW.plus(500 - 100 * number).to_datetime() if number % 2 else None,
        )
        for queue in QUEUES
        for number in range(0, 12, 2 if queue == "mail-1" else 1)
    ]
    server = ServerInfo(
        host="h",
        pid=1,
        server_id="5c1d",
        concurrency=9,
        queues=dict.fromkeys(QUEUES, 1),
        strict_priority=False,
        status="active",
        start_time=NOW.to_datetime(),
        active_worker_count=len(workers),
    )
    BlockingPerformer(client)(write_server_state(server, workers, ttl=10**6, now=NOW))


PAST = st.sampled_from(
    ["<1h", ">1h", "<=10m", "5m..2h", "1h..", "..30s", "<2033-05-18", ">=2033-05-18T03:00Z", "*"]
)
FUTURE = st.sampled_from(["past", "future", "<1h", ">5m", "1m..2h", "2033-05-18", "*"])
NAMES = st.sampled_from(["*", "e*", "*e*", "image", "email:deliver,image", '"email:bulk"', "*:*l*", "nope"])
WORDS = ("timeout", "boom", "t", "Ann", "acme", "pending-1", '"\\"id\\": 42"', "ut", "é", "nope")
VALUES: dict[str, st.SearchStrategy[str]] = {
    "state": st.sampled_from([*TaskState, "retry,archived", "pending,active,completed"]),
    "queue": st.sampled_from(["default", "mail-*", "*", "mail-1,mail-2", "nope"]),
    "id": st.sampled_from(["pending-1", "retry-3,archived-4", "nope", "active-1,active-2,completed-9"]),
    "type": NAMES,
    "error": st.sampled_from([*WORDS, f"sig:{SIGNATURE}", f"sig:{SIGNATURE[:2]}", "*", "boom,refused"]),
    "payload": st.sampled_from([*WORDS, "*", "blue,timeout"]),
    "result": st.sampled_from([*WORDS, "*"]),
    "payload.user.id": st.sampled_from(["42", ">42", '"42"', "*", "40..50", "9007199254740993", "4*"]),
    "payload.tags": st.sampled_from(["red", "b*", "*", "red,nope"]),
    "payload.*.name": st.sampled_from(["Ann", "A*"]),
    "header.tenant": st.sampled_from(["acme", "*", "umb*", "acme,umbrella", "nope"]),
    "header.n": st.sampled_from([">5", "<=3", "7"]),
    "retried": st.sampled_from(["0", ">1", "1..2", "<3"]),
    "max_retry": st.sampled_from(["25", "<3"]),
    "crashes": st.sampled_from(["0", ">0"]),
    "size": st.sampled_from(["<10", ">0.02kB", "0"]),
    "due": FUTURE,
    "failed": PAST,
    "archived": PAST,
    "completed": PAST,
    "expires": FUTURE,
    "waiting": PAST,
    "running": PAST,
    "deadline": st.sampled_from([">50%", "<=100%", "*", ">100"]),
    "server": st.sampled_from(["5c1d", "5*", "server", "*"]),
    "group": st.sampled_from(["g1", "g*", "g1,digest", "*", "nope"]),
    "unique": st.sampled_from(["*", "archived-0", "*-4", "nope"]),
}
CLAUSES = st.one_of(
    *(values.map(f"{name}:{{}}".format) for name, values in VALUES.items()),
    st.sampled_from(["orphaned", "poison", "overdue", *WORDS]),
)
QUERIES = st.recursive(
    CLAUSES | CLAUSES.map("-{}".format),
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(" ".join)
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' OR '.join(parts)})")
        | inner.map("-({})".format)
    ),
    max_leaves=5,
)


def brute_force(inspector: sync.Inspector, query: Query) -> list[tuple[str, str]]:
    """Return queue and id of each task that matches, by testing them all."""
    facts = match_facts(NOW, inspector.servers())
    return sorted(
        (queue, task.id)
        for queue in QUEUES
        for state in TaskState
        for group in (("g1", "g2", "digest") if state is TaskState.AGGREGATING else ("",))
        for task in inspector.list_tasks(queue, state, page_size=1_000, group=group)
        if query.matches(task, facts)
    )


def selected(inspector: sync.Inspector, query: Query, limit: int) -> list[tuple[str, str]]:
    """Return queue and id of each task that the searches find, one after another by their cursors."""
    found, cursor = [], ""
    selector = Selector(inspector, clock=_Clock())
    while True:
        *_, last = pages = list(
            selector.pages(query, cursor=cursor, limit=limit, budget=Budget(positions=100))
        )
        found += [(task.queue, task.id) for page in pages for task in page.tasks]
        assert last.matches == len(found)
        cursor = last.cursor
        if not cursor:
            return sorted(found)


@pytest.fixture
def world(redis_url: str, redis_client: RedisClient) -> Iterator[sync.Inspector]:
    """An inspector of queues with tasks of all kinds."""
    put_world(redis_client)
    put_server(redis_client)
    with sync.Inspector(redis_url, clock=_Clock()) as inspector:
        yield inspector


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize("examples", [15, pytest.param(60, marks=pytest.mark.long)])
def test_a_query_finds_what_a_test_of_every_task_finds(world: sync.Inspector, examples: int) -> None:
    """All fields and states, joined, negated and nested; each task once."""
    tried: set[str] = set()

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(QUERIES, st.integers(1, 40))
    def compare(text: str, limit: int) -> None:
        try:
            query = parse_query(text)
        except QueryError:
            return
        tried.add(text)
        assert brute_force(world, query) == selected(world, query, limit)

    compare()
    assert len(tried) > examples // 2


@pytest.mark.sample(6)
@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize("name", VALUES)
def test_every_field_finds_what_a_test_of_every_task_finds(world: sync.Inspector, name: str) -> None:
    """Alone and negated, with some value that matches a task and some that leaves one out."""
    totals = []

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(VALUES[name], st.sampled_from(["", "-"]))
    def compare(value: str, sign: str) -> None:
        query = parse_query(f"{sign}{name}:{value}")
        expected = brute_force(world, query)
        totals.append(len(expected))
        assert expected == selected(world, query, 50)

    compare()
    everything = len(QUEUES) * len(TaskState) * 12
    assert any(0 < total < everything for total in totals)


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize(
    "text", ["", "archived:<1h", "type:image", "state:active,pending", "due:past OR expires:>1h", "group:g1"]
)
def test_an_explanation_counts_the_positions_that_a_search_looks_at(world: sync.Inspector, text: str) -> None:
    """Nothing is looked at that the explanation did not tell, and nothing less."""
    query = parse_query(text)
    selector = Selector(world, clock=_Clock())
    *_, last = selector.pages(query, limit=10**6, budget=Budget(10**6, 600))
    explained = selector.explain(query)
    assert (explained.positions, explained.positions) == (last.looked_at, last.total)
    assert all(query.may_match(Place(one.place.state, one.place.queue)) for one in explained.collections)
