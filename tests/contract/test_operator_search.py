"""Searches through the operator: what a user may search, and that no search tells of a secret."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.errors import InvalidOptionError, PermissionDeniedError, QueryError
from pyasynq.operations import MASK, AnyPermission, Permission, Redactor, User
from pyasynq.operations import sync as blocking
from pyasynq.operations.query import Known
from pyasynq.task import TaskState
from tests.factories import Tasks
from tests.operator_walk import MINE, SECRET, THEIRS, fill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

OTHER = "swordfish-of-the-day"


@pytest.fixture
def operator(redis_url: str, redis_client: RedisClient, perform: Perform) -> Iterator[blocking.Operator]:
    """An operator for someone who may do everything."""
    fill(redis_client, perform)
    with blocking.Operator(redis_url, User.with_role("root", "admin")) as operator:
        yield operator


def found(operator: blocking.Operator, query: str, **asked: Any) -> tuple[list[str], int, int]:
    """Return ids, matches and positions of a search."""
    pages = list(operator.search(query, **asked))
    return [task.id for page in pages for task in page.tasks], pages[-1].matches, pages[-1].looked_at


def test_a_search_goes_through_the_queues_that_are_asked_for(operator: blocking.Operator) -> None:
    """All of them unless some are named."""
    assert {f"failed-in-{MINE}", f"failed-in-{THEIRS}"} == set(found(operator, "state:archived")[0])
    assert [f"failed-in-{MINE}"] == found(operator, "state:archived", queues=[MINE])[0]


GUESSES = [
    "payload:{0}",
    "-payload:{0}",
    "payload.password:{0}",
    "-payload.password:{0}",
    "payload.password:{1}*",
    "{0}",
    "-{0}",
    "error:{0}",
    "payload:redact OR payload:{0}",
    "payload:[redacted] OR payload:{0}",
    'payload:"[r" OR payload:{1}',
    "(payload:{0} OR type:nope) -state:active",
    "header.authorization:{0}",
    "result:{0} OR state:archived",
]


@pytest.mark.parametrize("hook", [None, lambda _task: None])
@pytest.mark.parametrize("guess", GUESSES)
def test_a_search_does_not_tell_a_right_guess_of_a_secret_from_a_wrong_one(
    operator: blocking.Operator, redis_url: str, guess: str, hook: Any
) -> None:
    """The same tasks, the same counts: a query is tested against what the user sees."""
    with blocking.Operator(redis_url, operator.user, redactor=Redactor(hook=hook)) as guessing:
        right, wrong = guess.format(SECRET, SECRET[:4]), guess.format(OTHER, OTHER[:4])
        assert found(guessing, wrong) == found(guessing, right)


def test_without_the_right_to_payloads_their_fields_are_refused(
    operator: blocking.Operator,
) -> None:
    """Words are looked for in ids and types."""
    viewer = operator.for_user(User("mira", {Permission.TASKS_VIEW: ("*",)}))
    with pytest.raises(QueryError, match="right to view payloads"):
        list(viewer.search("payload:user"))
    assert [] == found(viewer, "authorization")[0]
    assert [f"failed-in-{MINE}"] == found(viewer, f"failed-in-{MINE}")[0]


def test_payloads_are_searched_where_the_user_may_view_them(operator: blocking.Operator) -> None:
    """Other queues are left out of that query."""
    some = operator.for_user(User("mira", {Permission.TASKS_VIEW: ("*",), Permission.PAYLOAD_VIEW: (MINE,)}))
    assert {MINE, THEIRS} == {task.queue for page in some.search("state:archived") for task in page.tasks}
    assert {MINE} == {task.queue for page in some.search("payload.user:42") for task in page.tasks}


def test_completions_name_the_queues_that_the_user_sees(operator: blocking.Operator) -> None:
    """Names that the caller knows are completed too, except queues that the user does not see."""
    mine = operator.for_user(User.with_role("mira", "viewer", queues="team-*"))
    assert [MINE] == [one.insert for one in mine.complete_query("queue:", 6)]
    assert [THEIRS, MINE] == sorted(one.insert for one in operator.complete_query("queue:", 6))
    known = Known(queues=(THEIRS,), types=("email:deliver",))
    assert ["email:deliver"] == [one.insert for one in mine.complete_query("type:", 5, known)]
    assert [MINE] == [one.insert for one in mine.complete_query("queue:", 6, known)]


def test_an_explanation_leaves_out_queues_that_are_not_shown(operator: blocking.Operator) -> None:
    """It counts what the search will look at."""
    mine = operator.for_user(User.with_role("mira", "viewer", queues="team-*"))
    assert {MINE} == {one.place.queue for one in mine.explain_search("").collections}


def test_an_export_has_a_line_for_each_task_without_its_secrets(
    operator: blocking.Operator, redis_client: RedisClient
) -> None:
    """Bytes that are not text are Base64; the audit says who exported how many."""
    tasks = Tasks(redis_client, "exported")
    tasks.put(TaskState.ARCHIVED, "a", payload=b'{"password":"x","n":1}', error_msg="why", timeout=30)
    tasks.pending("b", payload=b"\xff\x00")
    lines = [json.loads(line) for line in operator.export("queue:exported")]
    assert [("a", f'{{"password":"{MASK}","n":1}}', "why", 30), ("b", None, None, 1_800)] == [
        (line["id"], line.get("payload"), line.get("last_error"), line.get("timeout")) for line in lines
    ]
    assert "/wA=" == lines[1]["payload_base64"]
    assert ["a"] == [json.loads(line)["id"] for line in operator.export("queue:exported", limit=1)]
    first, second = operator.audit().entries
    assert [("export", "done", {"count": 1}), ("export", "done", {"count": 2})] == [
        (entry.verb, entry.outcome, entry.counts) for entry in (first, second)
    ]


@pytest.mark.parametrize(("limit", "is_complete"), [(None, False), (3, False), (1, True)])
def test_an_export_whose_search_ends_too_early_is_an_error(
    operator: blocking.Operator,
    redis_client: RedisClient,
    monkeypatch: pytest.MonkeyPatch,
    limit: int | None,
    is_complete: bool,
) -> None:
    """Unless it has as many tasks as its limit allows, so that a part of the tasks is not taken for all."""
    monkeypatch.setattr("pyasynq.operations.sync.search._MOST_POSITIONS", 1)
    for queue in ("exported-1", "exported-2"):
        Tasks(redis_client, queue).pending("a")
    lines: list[str] = []
    with nullcontext() if is_complete else pytest.raises(InvalidOptionError, match="narrow it"):
        lines.extend(operator.export("queue:exported-*", limit=limit))
    assert is_complete == (len(lines) == limit)


def test_an_export_that_is_left_early_or_fails_is_in_the_audit(
    operator: blocking.Operator, redis_client: RedisClient
) -> None:
    """The entry has the outcome, and the number of tasks that were exported."""
    Tasks(redis_client, "exported").pending("b", "c")
    lines: Any = operator.export("queue:exported")
    next(lines)
    lines.close()
    with pytest.raises(QueryError):
        list(operator.export("nope:1"))
    failed, left = operator.audit().entries
    assert (("done", {"count": 1}), "failed") == ((left.outcome, left.counts), failed.outcome)


def test_an_export_needs_the_right_to_view_payloads(
    operator: blocking.Operator, redis_client: RedisClient
) -> None:
    """In each queue; of all queues it takes those where the user has it."""
    Tasks(redis_client, "mine").pending("m")
    Tasks(redis_client, "theirs").pending("t")
    grants: dict[AnyPermission, tuple[str, ...]] = {
        Permission.TASKS_VIEW: ("*",),
        Permission.PAYLOAD_VIEW: ("mine",),
    }
    leo = operator.for_user(User("leo", grants))
    assert ["m"] == [json.loads(line)["id"] for line in leo.export()]
    with pytest.raises(PermissionDeniedError, match=r"payload\.view"):
        list(leo.export(queues=["theirs"]))
