"""Secrets of tasks, and what a viewer may not see: on no page, in no answer, export, stream or log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest

from pyasynq.operations import Targets, User
from pyasynq.operations.sync import Operator
from pyasynq.task import TaskState
from tests.contract.web.test_api_permissions import NAMES
from tests.contract.web.test_api_permissions import ROWS as API_ROWS
from tests.contract.web.test_permissions import ROWS, role_of
from tests.factories import NOW, Tasks
from tests.run_async import run_async
from tests.shop import announce_schedules, announce_servers
from tests.visiting import ABROAD, visiting

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")

SECRET: Final = "hunter2-of-the-night"
CONTENT: Final = "attack-at-dawn"
_PAYLOAD: Final = f'{{"password":"{SECRET}","plan":"{CONTENT}"}}'.encode()
_STATES: Final = ("pending", "scheduled", "retry", "archived", "completed", "active")
_LINES: Final = {"accept": "application/x-ndjson"}


def _fill(client: RedisClient, url: str) -> str:
    """Put a task with a secret in each place into each state; return the id of an operation on one."""
    tasks = Tasks(client, "emails")
    for number, state in enumerate(_STATES):
        tasks.put(
            TaskState(state),
            "abcdef"[number],
            type="email.shipped",
            payload=_PAYLOAD,
            headers={"authorization": f"Bearer {SECRET}"},
            error_msg=f"LoginError: password='{SECRET}'" if state in {"retry", "archived"} else "",
            last_failed_at=1 if state in {"retry", "archived"} else 0,
            completed_at=NOW.seconds - 100 if state == "completed" else 0,
            retention=100 if state == "completed" else 0,
            extra={"result": _PAYLOAD} if state == "completed" else {},
        )
    client.zadd(tasks.keys.lease, {"f": 4_000_000_000})
    announce_servers(url)
    announce_schedules(client)
    with Operator(url, User.with_role("mira", "admin")) as operator:
        operator.edit_payload("emails", "d", _PAYLOAD.replace(b"dawn", b"dawn!"), reason=f"token={SECRET}")
        return operator.start_operation("archive", Targets({"emails": ["b"]})).operation


def _paths(operation: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the address of everything that can be read, and the headers that ask for it."""
    names = {**NAMES, "task": "d", "operation": operation}
    for name, row in ROWS.items():
        # The stream has no end; live.json has the same texts.
        if name.startswith("GET ") and name not in {"GET /live", "GET /static/{version}/{name}"}:
            yield row.path.replace("{operation}", operation), {}
    for name, api_row in API_ROWS.items():
        if name.startswith("GET ") and name != "GET /events":
            yield f"api/v1{name.removeprefix('GET ').format(**names)}?{api_row.query}", {}
    for task, state in zip("abcdef", _STATES, strict=True):
        yield f"queues/emails?state={state}", {}
        yield f"queues/emails/tasks/{task}", {}
        yield f"queues/emails/tasks/{task}?data=result", {}
        yield f"queues/emails/tasks/{task}/data/payload", {}
        yield f"live.json?page=/queues/emails/tasks/{task}", {}
        yield f"api/queues/emails/{state}_tasks", {}
        yield f"api/queues/emails/tasks/{task}", {}
    for query in ("state:archived", "queue:emails", f"payload:{CONTENT}"):
        yield f"tasks?q={query}", {}
        yield f"api/v1/tasks?q={query}", {}
        yield f"api/v1/tasks?q={query}", _LINES
    yield "bulk?act=delete&q=queue:emails", {}
    yield "live.json?page=/queues/emails&p.state=archived", {}


@pytest.mark.sample(1)
@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_no_answer_holds_a_secret(
    redis_url: str, redis_client: RedisClient, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor what a viewer may not see; those who may see payloads find the rest of the contents."""
    caplog.set_level(logging.DEBUG)
    operation = _fill(redis_client, redis_url)
    seen = 0

    async def read(visitor: httpx.AsyncClient) -> None:
        nonlocal seen
        for path, headers in _paths(operation):
            text = (await visitor.get(path, headers={**headers, "x-role": role})).text
            assert SECRET not in text, path
            if CONTENT not in path:
                seen += CONTENT in text
                assert role != "viewer" or CONTENT not in text, path

    @run_async
    async def visit() -> None:
        async with visiting(redis_url, client=ABROAD, auth=role_of) as visitor:
            await read(visitor)

    visit()
    assert (seen > 0) == (role != "viewer")
    assert SECRET not in caplog.text


@run_async
async def test_a_search_does_not_tell_of_a_secret(redis_url: str, redis_client: RedisClient) -> None:
    """A guess of its beginning finds nothing and looks at as much as a wrong one; nor does an export."""
    _fill(redis_client, redis_url)
    answers = []
    async with visiting(redis_url, client=ABROAD, auth=role_of) as visitor:
        visitor.headers["x-role"] = "admin"
        for guess in (SECRET[:7], "warbler"):
            for query in (
                f"payload:{guess}",
                f"error:{guess}",
                f"result:{guess}",
                f"payload.password:{guess}*",
            ):
                found = (await visitor.get("api/v1/tasks", params={"q": query})).json()
                lines = await visitor.get("api/v1/tasks", params={"q": query}, headers=_LINES)
                answers.append((guess, found["matches"], found["looked_at"], lines.text))
    first, second = ([one[1:] for one in answers if one[0] == guess] for guess in (SECRET[:7], "warbler"))
    assert first == second
    assert {(0, "")} == {(matches, lines) for matches, _, lines in first}
