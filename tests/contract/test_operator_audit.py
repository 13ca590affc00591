"""What the operator writes to the audit, and who may read it."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from pyasynq import operations
from pyasynq._wire.keys import AUDIT_KEY, REFUSED_KEY
from pyasynq.errors import InvalidOptionError, PermissionDeniedError, TaskNotFoundError
from pyasynq.operations import MASK, AuditFilters, User
from pyasynq.operations import sync as blocking
from tests.operator_walk import MINE, SECRET, THEIRS, fill
from tests.redis_6 import is_redis_6

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.operations import AuditEntry
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

ADMIN = User.with_role("root", "admin", login="password", address="10.0.0.1")


@pytest.fixture
def operator(redis_url: str, redis_client: RedisClient, perform: Perform) -> Iterator[blocking.Operator]:
    """An operator for an admin, in a database with two queues."""
    fill(redis_client, perform)
    with blocking.Operator(redis_url, ADMIN) as one:
        yield one


def entries(operator: blocking.Operator, **filters: Any) -> list[AuditEntry]:
    """Return what the audit has."""
    return list(operator.audit(AuditFilters(**filters)).entries)


def test_a_change_leaves_who_what_where_why_and_how_it_ended(operator: blocking.Operator) -> None:
    """One entry, also in the log."""
    operator.pause_queue(MINE, 60, reason="the provider is down")
    [entry] = entries(operator)
    assert ("root", "admin", "password", "10.0.0.1") == (entry.user, entry.role, entry.login, entry.address)
    assert ("pause_queue", (MINE,), {"duration": "60"}) == (entry.verb, entry.queues, entry.details)
    assert ("the provider is down", "done", "") == (entry.reason, entry.outcome, entry.error)
    assert entry.seconds is not None
    assert timedelta(0) <= datetime.now(UTC) - entry.at < timedelta(minutes=5)


def test_a_view_leaves_nothing(operator: blocking.Operator, redis_client: RedisClient) -> None:
    """To look is not to act."""
    operator.queue(MINE)
    operator.tasks(MINE, "pending")
    assert not redis_client.exists(AUDIT_KEY)


def test_a_change_that_fails_is_told_with_its_error(operator: blocking.Operator) -> None:
    """The caller gets the error as well."""
    with pytest.raises(TaskNotFoundError):
        operator.run_task(MINE, "nope")
    [entry] = entries(operator)
    assert ("failed", {"task_id": "nope"}) == (entry.outcome, entry.details)
    assert entry.error.startswith("TaskNotFoundError: cannot find task with id=nope")


def test_a_change_whose_process_dies_stays_announced(redis_url: str, operator: blocking.Operator) -> None:
    """Here its caller is cancelled while it waits; nothing tells how it ended."""

    async def cancelled() -> None:
        async with operations.Operator(redis_url, ADMIN) as one:
            call = asyncio.create_task(one.cancel_task(MINE, f"runs-in-{MINE}", wait=60))
            while not await asyncio.to_thread(lambda: entries(operator)):  # noqa: ASYNC110 - Redis tells
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(cancelled())
    [entry] = entries(operator)
    assert ("cancel_task", "started", None) == (entry.verb, entry.outcome, entry.seconds)


def test_an_edit_tells_what_was_there_before_without_secrets(operator: blocking.Operator) -> None:
    """Payloads, times and limits."""
    operator.edit_payload(MINE, f"failed-in-{MINE}", b'{"user":43,"password":"new-secret"}')
    operator.set_queue_limits(MINE, max_run=3)
    operator.set_queue_limits(MINE, max_run=4)
    limits, _, payload = entries(operator)
    assert f'{{"user":42,"password":"{MASK}"}}' == payload.before
    assert f'{{"user":43,"password":"{MASK}"}}' == payload.after
    assert "35 bytes" == payload.details["payload"]
    assert ("max_run 3", "max_run 4") == (limits.before, limits.after)


def test_no_secret_reaches_audit_or_log(
    operator: blocking.Operator, redis_client: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever argument it is in."""
    with caplog.at_level(logging.INFO, "pyasynq.audit"):
        operator.edit_payload(MINE, f"failed-in-{MINE}", f'{{"token":"{SECRET}"}}'.encode())
        operator.pause_queue(MINE, reason=f"password={SECRET}")
    held = json.dumps(
        [{k.decode(): v.decode() for k, v in f.items()} for _, f in redis_client.xrange(AUDIT_KEY)]
    )
    assert SECRET not in held
    assert SECRET not in caplog.text
    assert 4 == len(caplog.records)
    assert "pause_queue" == caplog.records[-1].audit["verb"]  # type: ignore[attr-defined]


def test_a_refused_call_is_noted_apart(operator: blocking.Operator, redis_client: RedisClient) -> None:
    """Ten of a user and an address; the audit of changes has none of them."""
    mallory = operator.for_user(User.with_role("mallory", "viewer", address="10.6.6.6"))
    for _ in range(12):
        with pytest.raises(PermissionDeniedError):
            mallory.delete_task(MINE, f"failed-in-{MINE}")
    assert not redis_client.exists(AUDIT_KEY)
    refused = operator.refusals().entries
    assert [2] + [0] * 9 == [entry.more for entry in refused]
    assert ("mallory", "delete_task", "refused") == (refused[0].user, refused[0].verb, refused[0].outcome)
    assert "needs tasks.delete" in refused[0].error


def test_a_user_reads_only_of_queues_that_audit_view_holds_for(operator: blocking.Operator) -> None:
    """And what that user did; entries of no queue are for those who see all."""
    operator.pause_queue(MINE)
    operator.pause_queue(THEIRS)
    mira = operator.for_user(User.with_role("mira", "operator", queues="team-*"))
    mira.resume_queue(MINE)
    assert [("resume_queue", (MINE,)), ("pause_queue", (MINE,))] == [
        (entry.verb, entry.queues) for entry in entries(mira)
    ]
    with pytest.raises(PermissionDeniedError, match=r"needs audit\.view"):
        operator.for_user(User.with_role("eve", "viewer")).audit()


def test_the_audit_is_filtered_and_paged(operator: blocking.Operator) -> None:
    """Filters are user, verb, queue, outcome, text and time."""
    operator.pause_queue(MINE, reason="Provider down")
    operator.pause_queue(THEIRS)
    operator.resume_queue(MINE)
    assert ["resume_queue", "pause_queue"] == [entry.verb for entry in entries(operator, queue="team-*")]
    assert [(THEIRS,)] == [entry.queues for entry in entries(operator, verb="pause_queue", queue="pay*")]
    assert 1 == len(entries(operator, text="provider DOWN"))
    assert [] == entries(operator, outcome="failed")
    assert [] == entries(operator, user="mira")
    [newest, middle, oldest] = entries(operator)
    assert [newest, middle] == entries(operator, since=middle.at)
    assert [middle, oldest] == entries(operator, until=middle.at)
    page = operator.audit(limit=2)
    assert (newest, middle) == page.entries
    assert page.cursor
    assert ((oldest,), None) == (operator.audit(cursor=page.cursor).entries, operator.audit().cursor)
    for cursor in ("x", "1-x", "1", "-", "1-2-3", "9" * 60 + "-1"):
        with pytest.raises(InvalidOptionError, match=r"^cursor="):
            operator.audit(cursor=cursor)


@pytest.mark.single_server("the users of a cluster are those of each node")
def test_with_a_redis_user_who_may_not_write_it_the_audit_goes_to_the_log(
    redis_url: str, redis_client: RedisClient, perform: Perform, caplog: pytest.LogCaptureFixture
) -> None:
    """The change is made if Redis allows it, and the operator tells that the audit is in the log only."""
    if is_redis_6(redis_client):
        pytest.skip("only on servers whose rights tell reading from writing")
    fill(redis_client, perform)
    rights = ["+@all", "%RW~asynq:{*", "%R~asynq:*"]
    redis_client.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "resetkeys", *rights)
    parts = urlsplit(redis_url)
    url = parts._replace(netloc=f"reader:pw@{parts.netloc.rpartition('@')[2]}").geturl()
    try:
        with blocking.Operator(url, ADMIN) as operator, caplog.at_level(logging.INFO, "pyasynq.audit"):
            before = operator.audit_is_in_log_only
            operator.pause_queue(MINE)
            assert (False, True) == (before, operator.audit_is_in_log_only)
            with pytest.raises(PermissionDeniedError):
                operator.for_user(User.with_role("eve", "viewer")).resume_queue(MINE)
        outcomes = [record.audit["outcome"] for record in caplog.records if record.name == "pyasynq.audit"]  # type: ignore[attr-defined]
        assert ["started", "done", "refused"] == outcomes
        assert redis_client.exists(f"asynq:{{{MINE}}}:paused")
        assert not redis_client.exists(AUDIT_KEY, REFUSED_KEY)
    finally:
        redis_client.execute_command("ACL", "DELUSER", "reader")
