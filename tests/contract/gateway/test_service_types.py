"""Task types over HTTP: read, made, changed and deleted by compare-and-set, and obeyed at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._wire.keys import queue_keys
from tests.contract.gateway.test_leases import check_problem
from tests.fix_leases import until
from tests.fix_service import TYPES, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.usefixtures("redis_client")
PLACE = "/v1/task-types/dumpfeature"


@run_async
async def test_all_types_are_listed_and_each_is_read(redis_url: str) -> None:
    """With a version, which is also the ETag."""
    async with serving(redis_url) as visitor:
        listed = (await visitor.ask("GET", "/v1/task-types")).json()["items"]
        one = await visitor.ask("GET", PLACE)
        again = await visitor.ask("GET", PLACE, headers={"If-None-Match": one.headers["etag"]})

    assert ["deliver", "dumpfeature", "resize"] == [one["name"] for one in listed]
    assert one.json() in listed
    assert (f'"{one.json()["version"]}"', 3_600, "api") == (
        *(one.headers["etag"], one.json()["retention"]),
        one.json()["managed"],
    )
    assert (304, b"") == (again.status_code, again.content)


@run_async
async def test_a_new_type_takes_tasks_at_once(redis_url: str, redis_client: RedisClient) -> None:
    """Its limits are those of its queue, for every worker; Go's spelling is understood."""
    async with serving(redis_url) as visitor:
        made = await visitor.ask("PUT", "/v1/task-types/mail", {"MaxRun": 2, "timeout": "1m"})
        task = await visitor.ask("POST", "/v1/tasks", {"type": "mail"})

    assert (201, "/v1/task-types/mail", 2) == (
        *(made.status_code, made.headers["location"]),
        made.json()["max_run"],
    )
    assert ("api", 201) == (made.json()["managed"], task.status_code)
    assert b"2" == redis_client.hget(queue_keys("mail").limits, "concurrency")


@run_async
async def test_a_field_is_changed_and_others_stay(redis_url: str, redis_client: RedisClient) -> None:
    """Null unsets one; both spellings name the same field."""
    async with serving(redis_url) as visitor:
        await visitor.ask("PATCH", PLACE, {"max_run": 4})
        changed = await visitor.ask("PATCH", PLACE, {"MaxRun": 5, "retention": None})

    assert (200, 5, False, True) == (
        *(changed.status_code, changed.json()["max_run"]),
        *("retention" in changed.json(), "schema" in changed.json()),
    )
    assert b"5" == redis_client.hget(queue_keys("dumpfeature").limits, "concurrency")


@run_async
async def test_another_instance_follows_within_a_moment(redis_url: str) -> None:
    """It reads changes every second, and at once when it is asked for a type that it does not know."""
    async with serving(redis_url) as visitor, serving(redis_url) as other:
        await other.ask("GET", "/v1/task-types")
        await visitor.ask("PUT", "/v1/task-types/mail", {})
        assert 201 == (await other.ask("POST", "/v1/tasks", {"type": "mail"})).status_code
        await visitor.ask("DELETE", "/v1/task-types/mail")
        await until(lambda: "mail" not in other.service.types)
        answer = await other.ask("POST", "/v1/tasks", {"type": "mail"})
        check_problem(answer, 422, "unknown_task_type", "type")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
@run_async
async def test_another_version_is_not_overwritten(redis_url: str, method: str) -> None:
    """The second editor is told, and has to read again."""
    async with serving(redis_url) as visitor:
        first = (await visitor.ask("GET", PLACE)).headers["etag"]
        changed = await visitor.ask("PATCH", PLACE, {"max_run": 4}, headers={"If-Match": first})
        late = await visitor.ask(method, PLACE, {"max_run": 9}, headers={"If-Match": first})
        check_problem(late, 412, "changed_meanwhile", "If-Match")
        assert 4 == (await visitor.ask("GET", PLACE)).json()["max_run"]
        current = {"If-Match": changed.headers["etag"]}
        assert (await visitor.ask(method, PLACE, {"max_run": 9}, headers=current)).status_code in {200, 204}


@run_async
async def test_a_type_is_made_once_with_if_none_match(redis_url: str) -> None:
    """And not replaced."""
    async with serving(redis_url) as visitor:
        headers = {"If-None-Match": "*"}
        made = await visitor.ask("PUT", "/v1/task-types/mail", {}, headers=headers)
        again = await visitor.ask("PUT", "/v1/task-types/mail", {"max_run": 1}, headers=headers)
        assert 201 == made.status_code
        check_problem(again, 412, "exists_already", "If-None-Match")
        missing = await visitor.ask("PUT", "/v1/task-types/other", {}, headers={"If-Match": "*"})
        check_problem(missing, 412, "changed_meanwhile", "If-Match")


@run_async
async def test_changes_without_a_version_do_not_lose_one_another(redis_url: str) -> None:
    """Each changes its own field, all at once."""
    changes = {"max_run": 7, "timeout": 30, "max_retry": 2, "retention": 60}
    async with serving(redis_url) as visitor:
        sent = [visitor.ask("PATCH", PLACE, {name: value}) for name, value in changes.items()]
        assert {200} == {answer.status_code for answer in await asyncio.gather(*sent)}
        found = (await visitor.ask("GET", PLACE)).json()
    assert changes == {name: found[name] for name in changes}


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
@run_async
async def test_a_dry_run_changes_nothing(redis_url: str, method: str) -> None:
    """It tells what would be stored, and which fields are invalid."""
    async with serving(redis_url) as visitor:
        before = (await visitor.ask("GET", PLACE)).json()
        answer = await visitor.ask(method, f"{PLACE}?dry_run=true", {"max_run": 4})
        assert before == (await visitor.ask("GET", PLACE)).json()
        if method != "DELETE":
            assert (200, 4) == (answer.status_code, answer.json()["after"]["max_run"])
            wrong = await visitor.ask(method, f"{PLACE}?dry_run=true", {"max_run": 0})
            check_problem(wrong, 422, "invalid_value", "max_run")


@run_async
async def test_types_of_the_file_are_changed_in_the_file(redis_url: str) -> None:
    """The next start would undo another change; so it is refused, with the remedy."""
    async with serving(redis_url) as visitor:
        for method in ("PUT", "PATCH"):
            answer = await visitor.ask(method, "/v1/task-types/resize", {"max_run": 9})
            problem = check_problem(answer, 409, "managed_by_file", "managed")
            assert 'managed = "api"' in problem["remedy"]
        assert 3 == (await visitor.ask("GET", "/v1/task-types/resize")).json()["max_run"]


@run_async
async def test_a_changed_type_survives_a_restart(redis_url: str) -> None:
    """The stored configuration wins over that of the file."""
    async with serving(redis_url) as visitor:
        await visitor.ask("PATCH", PLACE, {"max_run": 4})
    async with serving(redis_url) as visitor:
        assert 4 == (await visitor.ask("GET", PLACE)).json()["max_run"]


@run_async
async def test_a_deleted_type_takes_no_tasks(redis_url: str) -> None:
    """And is not found."""
    async with serving(redis_url) as visitor:
        assert 204 == (await visitor.ask("DELETE", PLACE)).status_code
        answer = await visitor.ask("POST", "/v1/tasks", {"type": "dumpfeature"})
        check_problem(answer, 422, "unknown_task_type", "type")
        for method in ("GET", "PATCH", "DELETE"):
            answer = await visitor.ask(method, PLACE, {} if method == "PATCH" else None)
            check_problem(answer, 404, "task_type_not_found")


@pytest.mark.parametrize(
    ("body", "field", "remedy"),
    [
        ({"max_run": 0}, "max_run", "pause its queue"),
        ({"maxrun": 1}, "maxrun", "max_run"),
        ({"kind": "cmd"}, "kind", "Only the service's file says what a command is"),
        ({"name": "other"}, "name", "leave it out"),
        ({"schema": {"type": 5}}, "schema", "JSON Schema"),
        ({"schema": "file.json"}, "schema", "JSON Schema"),
        ({"managed": "me"}, "managed", "'file' or 'api'"),
    ],
)
@run_async
async def test_a_wrong_configuration_names_its_field(
    redis_url: str, body: dict[str, Any], field: str, remedy: str
) -> None:
    """Nothing is stored."""
    async with serving(redis_url) as visitor:
        problem = check_problem(await visitor.ask("PUT", PLACE, body), 422, "invalid_value", field)
        assert remedy in problem["remedy"]
        assert TYPES["dumpfeature"]["schema"] == (await visitor.ask("GET", PLACE)).json()["schema"]


@run_async
async def test_the_audit_names_the_key(redis_url: str) -> None:
    """That changed a type."""
    async with serving(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("types:write")
        await visitor.ask("PATCH", PLACE, {"max_run": 4}, key=key)
        [entry] = [
            entry
            for entry in (await visitor.operator.audit()).entries
            if entry.verb == "set_type_configuration" and entry.user != "task-service"
        ]
    assert (f"key:{visitor.keys['test'].key.id}", "key", ("dumpfeature",)) == (
        *(entry.user, entry.login),
        entry.queues,
    )
