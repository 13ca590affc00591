"""Task types that workers publish: the scripts, the service, and those who read them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App, Callback, Inspector, Secret, ServerConfig
from pyasynq._broker import task_types as plans
from pyasynq._broker.task_types import KEPT_SECONDS, publish_types, read_types, renew_types
from pyasynq._engine.services import type_publisher
from pyasynq._wire.keys import TASK_TYPES_KEY
from pyasynq.doctor import Doctor, FindingKind
from pyasynq.events import HeartbeatWritten, RoundFinished, TypesNotPublished
from pyasynq.mux import Mux
from pyasynq.task_types import ServedTypes, TaskTypeInfo
from tests.factories import NOW
from tests.fix_engine import do_nothing, serving
from tests.run_async import run_async
from tests.waiting import set_to

if TYPE_CHECKING:
    from tests.factories import Tasks
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

BEFORE = NOW._replace(seconds=NOW.seconds - 100)


def known(client: RedisClient) -> dict[str, str]:
    """Return what the hash holds."""
    return {name.decode(): value.decode() for name, value in client.hgetall(TASK_TYPES_KEY).items()}


def test_a_type_is_published_with_its_second(perform: Perform, redis_client: RedisClient) -> None:
    """Nothing is told of what is empty; the key ends with its last type."""
    info = TaskTypeInfo("mail", "low", {"type": "object"}, {"max_retry": 5}, ("pin",), "Deliver.", "1.2")
    assert [] == perform(publish_types([info, TaskTypeInfo("img:", is_prefix=True)], NOW))
    facts = {
        "queue": "low",
        "schema": {"type": "object"},
        "options": {"max_retry": 5},
        "secrets": ["pin"],
        "summary": "Deliver.",
        "version": "1.2",
    }
    text = json.dumps(facts, separators=(",", ":"))
    assert {"mail": f"{NOW.seconds} {text}", "img:": f'{NOW.seconds} {{"prefix":true}}'} == known(
        redis_client
    )
    assert set_to(KEPT_SECONDS) == redis_client.ttl(TASK_TYPES_KEY)


def test_a_published_type_is_read_as_it_was(perform: Perform) -> None:
    """Types come in the order of their names, with the time of publication."""
    infos = [
        TaskTypeInfo("b", "low", {}, {"timeout": 5}),
        TaskTypeInfo("a:", is_prefix=True, summary="Grüße"),
    ]
    perform(publish_types(infos, NOW))
    first, second = perform(read_types(NOW))
    assert ("a:", True, "Grüße", NOW.seconds) == (
        first.type,
        first.is_prefix,
        first.summary,
        first.seen and first.seen.timestamp(),
    )
    assert ("b", "low", {"timeout": 5}) == (second.type, second.queue, second.options)


def test_publishing_again_replaces_the_description(perform: Perform, redis_client: RedisClient) -> None:
    """The newest worker is right."""
    perform(publish_types([TaskTypeInfo("t", version="1")], BEFORE))
    perform(publish_types([TaskTypeInfo("t", version="2")], NOW))
    assert {"t": f'{NOW.seconds} {{"version":"2"}}'} == known(redis_client)


def test_renewing_keeps_the_description_and_tells_what_is_missing(
    perform: Perform, redis_client: RedisClient
) -> None:
    """So an old worker that goes on does not undo what a new one has published."""
    perform(publish_types([TaskTypeInfo("t", version="2\n3")], BEFORE))
    redis_client.hset(TASK_TYPES_KEY, "odd", "no second")
    redis_client.persist(TASK_TYPES_KEY)
    assert ["gone", "odd"] == perform(renew_types(["t", "gone", "odd"], NOW))
    assert f'{NOW.seconds} {{"version":"2\\n3"}}' == known(redis_client)["t"]
    assert set_to(KEPT_SECONDS) == redis_client.ttl(TASK_TYPES_KEY)
    redis_client.hdel(TASK_TYPES_KEY, "odd")


def test_types_that_no_worker_has_named_for_30_days_are_neither_read_nor_kept(
    perform: Perform, redis_client: RedisClient
) -> None:
    """Each publication forgets some of them; one that was named 30 days ago to the second stays."""
    redis_client.hset(TASK_TYPES_KEY, "old", f"{NOW.seconds - KEPT_SECONDS - 1} {{}}")
    redis_client.hset(TASK_TYPES_KEY, "edge", f"{NOW.seconds - KEPT_SECONDS} {{}}")
    redis_client.hset(TASK_TYPES_KEY, "odd", "x")
    assert ["edge"] == [one.type for one in perform(read_types(NOW))]
    perform(publish_types([TaskTypeInfo("t")], NOW))
    assert {"edge", "t"} == known(redis_client).keys()


def test_no_more_types_are_taken_than_there_is_room_for(
    perform: Perform, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Types that are there already are replaced; those that are left out are told."""
    monkeypatch.setattr(plans, "MAX_PUBLISHED_TYPES", 2)
    types = [TaskTypeInfo(name) for name in "abc"]
    assert ["c"] == perform(publish_types(types, BEFORE))
    assert ["c"] == perform(publish_types(types[::-1], NOW))
    assert {"a", "b"} == known(redis_client).keys()
    assert all(value.startswith(f"{NOW.seconds} ") for value in known(redis_client).values())


def test_a_large_schema_is_left_out_and_a_larger_description_refused(
    perform: Perform, redis_client: RedisClient
) -> None:
    """The bound keeps one type from filling Redis."""
    large, huge = {"title": "x" * 40_000}, {"note": "x" * 40_000}
    types = [TaskTypeInfo("large", schema=large, summary="s"), TaskTypeInfo("huge", options=huge)]
    assert ["huge"] == perform(publish_types(types, NOW))
    assert {"large": f'{NOW.seconds} {{"summary":"s"}}'} == known(redis_client)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"5",
        b"5 x",
        b"5 []",
        b'5 {"secrets":5}',
        b"99999999999999999999 {}",
        b"5 " + b"[" * 10_000,
        b"\xff",
    ],
)
def test_what_cannot_be_read_is_left_out(perform: Perform, redis_client: RedisClient, value: bytes) -> None:
    """Any program may have written it."""
    redis_client.hset(TASK_TYPES_KEY, "odd", value)
    redis_client.hset(TASK_TYPES_KEY, b"\xff", f"{NOW.seconds} {{}}")
    redis_client.hset(TASK_TYPES_KEY, "sound", f"{NOW.seconds} {{}}")
    assert ["sound"] == [one.type for one in perform(read_types(NOW))]
    redis_client.delete(TASK_TYPES_KEY)


def shop() -> App:
    """An app with two tasks."""
    app = App(version="2026.11")

    @app.task("mail", queue="low", max_retry=5, timeout=timedelta(minutes=1), headers={"tenant": "acme"})
    async def mail(user: int, password: Secret[str]) -> None:
        """Deliver one message.

        And more.
        """

    @app.task("plain")
    def plain() -> None: ...

    return app


@run_async
async def test_a_server_publishes_the_types_of_its_app_at_its_start(redis_url: str) -> None:
    """With queue, defaults, secrets, summary and version, but no header; its record names the types."""
    app = shop()
    async with serving(redis_url, app) as running, Inspector(redis_url) as inspector:
        await running.recorder.wait(RoundFinished, lambda event: event.service == "type_publisher")
        await running.recorder.wait(HeartbeatWritten)
        mail, plain = await inspector.task_types()
        [server] = await inspector.servers()
    assert ("mail", "low", ("password",)) == (mail.type, mail.queue, mail.secrets)
    assert {"max_retry": 5, "timeout": 60.0} == mail.options
    assert ("Deliver one message.", "2026.11") == (mail.summary, mail.version)
    assert app.tasks["mail"].schema() == mail.schema
    assert ("plain", "default", {}) == (plain.type, plain.queue, plain.options)
    assert ServedTypes(frozenset({"mail", "plain"})) == server.types


@pytest.mark.parametrize("way", ["task", "callback"])
@run_async
async def test_a_server_publishes_a_callback_as_its_type(redis_url: str, way: str) -> None:
    """`on_finished` is a task or a `Callback`; tools read the type's name."""
    app = App()

    @app.task("mail:sent")
    async def sent(id: str, type: str, outcome: str, error: str) -> None: ...  # noqa: A002 - as callbacks take them

    @app.task("mail", on_finished=sent if way == "task" else Callback("mail:sent", "low"))
    async def deliver() -> None: ...

    async with serving(redis_url, app) as running, Inspector(redis_url) as inspector:
        await running.recorder.wait(RoundFinished, lambda event: event.service == "type_publisher")
        mail, _ = await inspector.task_types()
    assert {"on_finished": "mail:sent"} == mail.options


@run_async
async def test_a_server_publishes_the_patterns_of_its_mux(redis_url: str) -> None:
    """A mux serves whatever begins with one."""
    mux = Mux()

    @mux.handler("img:")
    async def image(task: Any) -> None:
        """Work on an image."""

    async with serving(redis_url, mux) as running, Inspector(redis_url) as inspector:
        await running.recorder.wait(RoundFinished, lambda event: event.service == "type_publisher")
        await running.recorder.wait(HeartbeatWritten)
        [info] = await inspector.task_types()
        [server] = await inspector.servers()
    assert ("img:", True, "Work on an image.", None) == (info.type, info.is_prefix, info.summary, info.schema)
    assert server.types is not None
    assert "img:resize" in server.types
    assert "mail" not in server.types


@run_async
async def test_a_server_with_one_handler_for_all_types_publishes_nothing(
    redis_url: str, redis_client: RedisClient
) -> None:
    """It knows no types."""
    async with serving(redis_url, do_nothing) as running, Inspector(redis_url) as inspector:
        await running.recorder.wait(HeartbeatWritten)
        [server] = await inspector.servers()
    assert server.types is None
    assert not redis_client.exists(TASK_TYPES_KEY)


@run_async
async def test_a_server_publishes_again_what_redis_has_lost(
    redis_url: str, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the next renewal, an hour later at most."""
    monkeypatch.setattr(type_publisher, "_RENEW_SECONDS", 0.05)
    async with serving(redis_url, shop()) as running:
        await running.recorder.wait(RoundFinished, lambda event: event.service == "type_publisher")
        redis_client.delete(TASK_TYPES_KEY)
        while len(known(redis_client)) < 2:
            await running.recorder.wait(
                RoundFinished, lambda event: event.service == "type_publisher", new=True
            )


@run_async
async def test_types_that_were_not_taken_are_told_once(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One event reports them, and the log shows it."""
    monkeypatch.setattr(plans, "MAX_PUBLISHED_TYPES", 1)
    monkeypatch.setattr(type_publisher, "_RENEW_SECONDS", 0.01)
    async with serving(redis_url, shop()) as running:
        for _ in range(3):
            await running.recorder.wait(
                RoundFinished, lambda event: event.service == "type_publisher", new=True
            )
        [told] = running.recorder.of(TypesNotPublished)
    assert 1 == len(told.types)
    lines = [line for line in caplog.messages if line.startswith("tools do not know 1 task type: ")]
    assert [True] == [line.endswith(told.types[0]) for line in lines]


@pytest.mark.usefixtures("damage_allowed")
@run_async
async def test_waiting_types_without_a_handler_are_a_finding(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Only when every server of the queue says what it handles, and the queue is not paused."""
    app = shop()
    config = ServerConfig(queues={"default": 1}, on_unknown="return")
    tasks.pending("waits", type="misspelt")
    redis_client.hset(tasks.keys.task("waits"), "pending_since", "1000000000")
    async with Doctor(redis_url, pause=0) as doctor:

        async def unserved() -> list[tuple[str, ...]]:
            found = await doctor.examine()
            return [one.subjects for one in found if one.kind is FindingKind.UNSERVED_TYPE]

        async with serving(redis_url, app, config):
            assert [("misspelt",)] == await unserved()
            redis_client.set(tasks.keys.paused, 1)
            assert [] == await unserved()
            redis_client.delete(tasks.keys.paused)
            async with serving(redis_url, Mux(), config):
                assert [] == await unserved()
