"""Versions of task types over HTTP: who changed them, the way back, and the limits of deleted ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._wire.keys import CONFIGURATIONS_KEY, configuration_versions_key, queue_keys
from pyasynq.operations import Operator, User
from tests.contract.gateway.test_leases import check_problem
from tests.fix_service import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.fix_service import Visitor
    from tests.invariants import RedisClient

pytestmark = pytest.mark.usefixtures("redis_client")
PLACE = "/v1/task-types/mail"


async def change(visitor: Visitor, *numbers: int) -> list[int]:
    """Set `max_run` to one number after the other; return the versions."""
    answers = [await visitor.ask("PUT", PLACE, {"max_run": number}) for number in numbers]
    return [answer.json()["version"] for answer in answers]


async def list_versions(visitor: Visitor, key: str | None = None) -> list[dict[str, Any]]:
    """Return the versions of the type, the newest first."""
    answer = await visitor.ask("GET", f"{PLACE}/versions", key=key)
    assert 200 == answer.status_code, answer.text
    return list(answer.json()["items"])


@run_async
async def test_each_version_tells_who_made_it_and_when(redis_url: str) -> None:
    """A change that changes nothing makes none; a deletion is one."""
    async with serving(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("types:write")
        user = f"key:{visitor.keys['test'].key.id}"
        for number in (1, 1, 2):
            await visitor.ask("PUT", PLACE, {"max_run": number}, key=key)
        await visitor.operator.set_type_configuration("mail", {"managed": "api"}, reason="by hand")
        await visitor.ask("DELETE", PLACE, key=key)
        found = await list_versions(visitor, key)
        other = await visitor.make_key("tasks:write", "tasks:read", name="other")
        check_problem(await visitor.ask("GET", f"{PLACE}/versions", key=other), 403, "missing_scope")

    assert [(user, None), ("admin", {"managed": "api"}), (user, 2), (user, 1)] == [
        (one["by"], one["content"] and one["content"].get("max_run", one["content"])) for one in found
    ]
    assert "by hand" == found[1]["reason"]
    numbers = [one["version"] for one in found]
    assert numbers == sorted(numbers, reverse=True)
    assert all(one["at"] for one in found)


@run_async
async def test_twenty_versions_are_kept(redis_url: str, redis_client: RedisClient) -> None:
    """For 400 days after the last change."""
    async with serving(redis_url) as visitor:
        versions = await change(visitor, *range(1, 26))
        assert versions[:4:-1] == [one["version"] for one in await list_versions(visitor)]
    assert 0 < redis_client.ttl(configuration_versions_key("mail")) <= 400 * 86_400


@run_async
async def test_the_present_version_is_listed_without_its_record(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The records may be lost, or no records at all."""
    async with serving(redis_url) as visitor:
        [version] = await change(visitor, 3)
        key = configuration_versions_key("mail")
        redis_client.delete(key)
        redis_client.zadd(key, {b"[]": 1, b'{"at":1,"by":"x","reason":"","content":5}': 2})
        [one] = await list_versions(visitor)
    assert (version, "", None, 3) == (one["version"], one["by"], one["at"], one["content"]["max_run"])


@run_async
async def test_a_former_version_is_stored_again(redis_url: str, redis_client: RedisClient) -> None:
    """As a new one, over the one that was read; a rehearsal stores nothing."""
    async with serving(redis_url) as visitor:
        first, second = await change(visitor, 1, 2)
        body = {"version": first, "reason": "too many"}
        stale = await visitor.ask("POST", f"{PLACE}:rollback", body, headers={"If-Match": f'"{first}"'})
        check_problem(stale, 412, "changed_meanwhile", "If-Match")
        rehearsed = await visitor.ask("POST", f"{PLACE}:rollback?dry_run=true", body)
        assert [True, 2, 1] == [
            rehearsed.json()["dry_run"],
            *(rehearsed.json()[when]["max_run"] for when in ("before", "after")),
        ]
        assert second == (await visitor.ask("GET", PLACE)).json()["version"]
        done = await visitor.ask("POST", f"{PLACE}:rollback", body, headers={"If-Match": f'"{second}"'})
        assert (200, 1) == (done.status_code, done.json()["max_run"])
        assert second < done.json()["version"]
        newest = (await list_versions(visitor))[0]
        assert ("local", "too many") == (newest["by"], newest["reason"])
        missing = await visitor.ask("POST", f"{PLACE}:rollback", {"version": 5})
        check_problem(missing, 404, "version_not_found", "version")
    assert b"1" == redis_client.hget(queue_keys("mail").limits, "concurrency")


@run_async
async def test_a_deleted_type_comes_back(redis_url: str) -> None:
    """With its limits; a deletion itself cannot be gone back to."""
    async with serving(redis_url) as visitor:
        [version] = await change(visitor, 4)
        await visitor.ask("DELETE", PLACE)
        deletion = (await list_versions(visitor))[0]["version"]
        wrong = await visitor.ask("POST", f"{PLACE}:rollback", {"version": deletion})
        check_problem(wrong, 404, "version_not_found", "version")
        back = await visitor.ask("POST", f"{PLACE}:rollback", {"version": version})
        assert (201, 4) == (back.status_code, back.json()["max_run"])
        assert 201 == (await visitor.ask("POST", "/v1/tasks", {"type": "mail"})).status_code
        assert 4 == (await visitor.operator.queue_limits("mail")).stored.max_run
        unknown = await visitor.ask("GET", "/v1/task-types/nothing/versions")
        check_problem(unknown, 404, "task_type_not_found")


@run_async
async def test_a_type_of_the_file_does_not_go_back(redis_url: str) -> None:
    """The next start would undo it."""
    async with serving(redis_url) as visitor:
        await visitor.ask("GET", "/ready")
        [one] = (await visitor.ask("GET", "/v1/task-types/resize/versions")).json()["items"]
        answer = await visitor.ask("POST", "/v1/task-types/resize:rollback", {"version": one["version"]})
        check_problem(answer, 409, "managed_by_file", "managed")


@run_async
async def test_a_deleted_type_leaves_no_limits_behind(redis_url: str) -> None:
    """Its queue's tasks run without them, unless someone has set others by hand."""
    async with serving(redis_url) as visitor:
        for by_hand, left in ((None, None), (9, 9)):
            await visitor.ask("PUT", PLACE, {"max_run": 2, "rate": "5/s"})
            await visitor.ask("POST", "/v1/tasks", {"type": "mail"})
            if by_hand:
                await visitor.operator.set_queue_limits("mail", max_run=by_hand)
            assert 204 == (await visitor.ask("DELETE", PLACE)).status_code
            stored = (await visitor.operator.queue_limits("mail")).stored
            assert left == stored.max_run
            assert (stored.rate is None) == (left is None)


@run_async
async def test_a_change_whose_record_cannot_be_written_is_done(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The version is stored first; then only who made it is unknown."""
    redis_client.set(configuration_versions_key("mail"), b"another type of key")
    async with Operator(redis_url, User.with_role("mira", "admin")) as operator:
        stored = await operator.set_type_configuration("mail", {"max_run": 2})
        assert stored == await operator.type_configuration("mail")
    assert redis_client.hexists(CONFIGURATIONS_KEY, "mail")
    redis_client.delete(configuration_versions_key("mail"))
