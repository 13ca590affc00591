"""Redacted fields: in no result, error, export, audit entry or log, and no search tells them apart."""

from __future__ import annotations

import inspect
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pyasynq._broker.task_types import publish_types
from pyasynq._wire.keys import AUDIT_KEY, REFUSED_KEY, TASK_TYPES_KEY
from pyasynq.errors import PyasynqError
from pyasynq.operations import MASK, VERBS, Redactor, User
from pyasynq.operations import sync as blocking
from pyasynq.task import Task, TaskInfo, TaskState
from pyasynq.task_types import TaskTypeInfo
from tests.contract.test_operator_walk import _Clock, everything_in
from tests.factories import NOW, Tasks
from tests.operator_walk import MINE, arguments, fill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

ADMIN = User.with_role("root", "admin")
SENTINEL = "sentinel-7f3a"
TYPE = "pay:card"
PUBLISHED = TaskTypeInfo(TYPE, secrets=("card.number", "pin", "keys[].value"))
HOOKED = "note"


def hide_note(task: TaskInfo) -> TaskInfo | None:
    """Redact a field that neither a name nor a worker calls secret."""
    payload = task.payload
    if b'"note"' in payload:
        payload = json.dumps({**json.loads(payload), HOOKED: "hidden"}).encode()
    return replace(task, payload=payload, headers={**task.headers, "x-note": "hidden"})


REDACTOR = Redactor(hook=hide_note)


def payload_of(secret: str, noted: str) -> bytes:
    """Return a payload with the secret in each of its redacted fields, and a text for the hook."""
    fields = {
        "user": 42,
        "password": secret,
        "apiKey": {"inner": [secret]},
        "pin": secret,
        "card": {"number": secret, "brand": "visa"},
        "keys": [{"value": secret, "name": "k"}],
        HOOKED: noted,
        "nested": json.dumps({"token": secret}),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def put(client: RedisClient, queue: str, name: str, secret: str, *, noted: str) -> None:
    """Put tasks with a secret in every redacted field into a queue; `noted` is what the hook hides."""
    tasks = Tasks(client, queue)
    progress = {"done": 1, "at": NOW.seconds, "note": f"signed in with {secret}"}
    attempt = {"start": NOW.seconds - 9, "end": NOW.seconds - 8, "server": "s", "outcome": "retried"}
    extra = {
        "x:trace": f"Traceback: pin={secret}",
        "x:progress": json.dumps(progress),
        "x:attempts": json.dumps([{**attempt, "error": f"no {secret}"}]),
        "result": json.dumps({"token": secret, "text": f"welcome {secret}"}).encode(),
    }
    fields: dict[str, Any] = {
        "type": TYPE,
        "payload": payload_of(secret, noted),
        "headers": {"authorization": f"Bearer {secret}", "cookie": secret, "x-note": noted, "tenant": "a"},
        "error_msg": f"LoginError: refused {secret!r} at redis://app:{secret}@host; pin={secret}",
        "last_failed_at": NOW.seconds - 60,
    }
    tasks.put(TaskState.ARCHIVED, f"failed-{name}", extra=extra, **fields)
    tasks.put(TaskState.RETRY, f"retried-{name}", extra=extra, **fields)
    done = {**fields, "error_msg": "", "completed_at": NOW.seconds - 60, "retention": 120}
    tasks.put(TaskState.COMPLETED, f"done-{name}", extra=extra, score=NOW.seconds + 60, **done)
    packed = msgspec.msgpack.encode({"password": secret, "number": secret, "user": 42})
    tasks.put(TaskState.SCHEDULED, f"packed-{name}", **{**fields, "payload": packed, "error_msg": ""})


@pytest.fixture
def secret_database(redis_client: RedisClient, perform: Perform) -> RedisClient:
    """A database with the sentinel in it."""
    fill(redis_client, perform)
    perform(publish_types([PUBLISHED], now=NOW))
    put(redis_client, MINE, "one", SENTINEL, noted=SENTINEL)
    # The walk names this task.
    put(redis_client, MINE, "x", SENTINEL, noted=SENTINEL)
    return redis_client


def calls_of(verb: str) -> list[tuple[Sequence[Any], dict[str, Any]]]:
    """Return calls of a verb about tasks with secrets, besides that of the walk."""
    given = arguments(verb, MINE)
    assert given is not None
    payload = payload_of(SENTINEL, SENTINEL)
    own: dict[str, list[tuple[Sequence[Any], dict[str, Any]]]] = {
        "tasks": [((MINE, state), {}) for state in ("archived", "retry", "completed", "scheduled")],
        "walk_tasks": [((MINE, state), {}) for state in ("archived", "retry", "completed", "scheduled")],
        "task": [((MINE, f"{kind}-one"), {}) for kind in ("failed", "retried", "done", "packed")],
        "wait_task": [((MINE, "failed-one", 0), {}), ((MINE, "done-one", 0), {})],
        "enqueue": [((MINE, Task(TYPE, payload, headers={"cookie": SENTINEL})), {})],
        "enqueue_copy": [((MINE, "failed-one"), {}), ((MINE, "done-one", payload), {})],
        "edit_payload": [((MINE, "failed-one", payload), {})],
        "errors": [((MINE, "retry"), {})],
        "error_reports": [(([MINE], "retry"), {})],
        "pause_queue": [((MINE,), {"reason": f"password={SENTINEL}"})],
    }
    return [given, *own.get(verb, [])]


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_a_secret_is_in_no_result_error_audit_or_log(
    redis_url: str, secret_database: RedisClient, caplog: pytest.LogCaptureFixture, role: str
) -> None:
    """Each verb is called on tasks with the secret in every redacted field, by name, type and hook."""
    caplog.set_level(logging.DEBUG)
    found: dict[str, str] = {}
    user = User.with_role("mira", role)
    # What deletes comes last.
    for verb in sorted(VERBS, key=lambda name: ("delete" in name, VERBS[name].changes)):
        for args, kwargs in calls_of(verb):
            # Each verb knows by itself what the workers have published.
            with blocking.Operator(redis_url, user, clock=_Clock(), redactor=REDACTOR) as operator:
                try:
                    result = getattr(operator, verb)(*args, **kwargs)
                    found[verb] = everything_in(list(result) if inspect.isgenerator(result) else result)
                except PyasynqError as error:
                    found[verb] = "".join(map(str, (error, error.args, vars(error))))
            assert SENTINEL not in found[verb], verb
    streams = {key: secret_database.xrange(key) for key in (AUDIT_KEY, REFUSED_KEY)}
    assert all(streams.values()) if role != "admin" else streams[AUDIT_KEY]
    assert SENTINEL not in repr(streams)
    assert "export" in found
    assert SENTINEL not in caplog.text + repr([vars(record) for record in caplog.records])


@pytest.mark.usefixtures("damage_allowed")
def test_a_damaged_list_of_types_hides_nothing_else(
    redis_url: str, redis_client: RedisClient, perform: Perform, caplog: pytest.LogCaptureFixture
) -> None:
    """Damage can still be looked at; secrets are known by their names alone, and the log says so."""
    fill(redis_client, perform)
    redis_client.set(TASK_TYPES_KEY, "odd")
    with blocking.Operator(redis_url, ADMIN, clock=_Clock()) as operator:
        shown = operator.task(MINE, f"failed-in-{MINE}")
        assert f'{{"user":42,"password":"{MASK}"}}'.encode() == shown.payload
        operator.queue(MINE)
    assert 1 == caplog.text.count("secret fields of tasks are known by their names only")


QUERIES = (
    *(SENTINEL, f"{SENTINEL}*", SENTINEL[:6], "7f3a", '"no sentinel"'),
    *(f"payload:{SENTINEL}", f"payload.password:{SENTINEL}", "payload.password:*", "payload.pin:*7f3a"),
    *(f"payload.card.number:{SENTINEL}", "payload.keys.*.value:s*", f"payload.{HOOKED}:{SENTINEL}"),
    *(f"header.authorization:*{SENTINEL}", f"header.cookie:{SENTINEL}", f"header.x-note:{SENTINEL}"),
    *(f"error:{SENTINEL}", "error:refused", f"result:{SENTINEL}", f'result:"welcome {SENTINEL}"'),
    *(f"-payload:{SENTINEL}", f"-error:{SENTINEL}", f"payload.nested:*{SENTINEL}*", f"payload:{MASK[1:5]}"),
    *("payload:visa", "payload.card.brand:visa", "payload.user:42", "payload.password:>3", "size:>1"),
)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("hook", [None, hide_note])
def test_no_search_tells_secrets_apart(
    redis_url: str, redis_client: RedisClient, perform: Perform, query: str, hook: Any
) -> None:
    """Two tasks that differ in their secrets only are both found, or neither is."""
    perform(publish_types([PUBLISHED], now=NOW))
    for name, secret in {"one": SENTINEL, "two": SENTINEL[::-1]}.items():
        put(redis_client, MINE, name, secret, noted=secret if hook else "")
    with blocking.Operator(redis_url, ADMIN, clock=_Clock(), redactor=Redactor(hook=hook)) as operator:
        ids = {task.id for page in operator.search(query, limit=100) for task in page.tasks}
    assert {name.replace("-one", "-two") for name in ids if "-one" in name} == {
        name for name in ids if "-two" in name
    }
