"""Under test, nothing of pyasynq speaks to any other Redis; afterwards all is as it was."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import redis

from pyasynq import App, Client, Inspector, Scheduler, Server, ServerConfig, sync, testing
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import ConfigurationError, ForeignRedisError, ServerStateError
from tests.fix_engine import do_nothing
from tests.fix_kit import NOWHERE, make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.invariants import RedisClient


def test_an_app_works_on_the_tests_database_only_within_the_block(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The connections that it had opened are closed; afterwards it has its own settings again."""
    app = App(redis_url)

    @app.task("work")
    def work() -> None: ...

    work.enqueue_sync()
    with sound_kit(app) as kit:
        work.enqueue_sync()
        kit.assert_enqueued(work, count=1)
        app.url = redis_url
        assert kit.url == app.url
        assert kit.url.partition("?")[0].removeprefix("unix://") == app.address
        work.enqueue_sync()
        kit.assert_enqueued(work, count=2)
        assert 1 == redis_client.llen("asynq:{default}:pending")
    assert redis_url == app.url
    work.enqueue_sync()
    assert 2 == redis_client.llen("asynq:{default}:pending")
    app.close_sync()


def test_an_earlier_asyncio_client_is_closed_even_if_its_loop_is_gone(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Without a warning, and without a connection that stays."""
    app = App(redis_url)

    async def enqueue() -> None:
        await app.enqueue("work")

    asyncio.run(enqueue())
    with sound_kit(app) as kit:
        asyncio.run(enqueue())
        kit.assert_enqueued("work", count=1)
    gc.collect()
    assert 1 == redis_client.llen("asynq:{default}:pending")


def test_no_other_redis_can_be_spoken_to(redis_url: str, redis_client: RedisClient) -> None:
    """Any client in any thread is redirected, on open connections and on new ones."""
    open_already = sync.Client(redis_url)
    open_already.ping()

    async def others() -> None:
        async with Client(redis_url) as client, Inspector(redis_url) as inspector:
            for attempt in (client.ping(), inspector.queues(), Server(redis_url).start(do_nothing)):
                with pytest.raises(ForeignRedisError):
                    await attempt
            scheduler = Scheduler(redis_url)
            with pytest.raises(ForeignRedisError):
                await scheduler.start()
            with pytest.raises(ForeignRedisError):
                await client.enqueue("work")

    refused = []

    def in_a_thread() -> None:
        with pytest.raises(ForeignRedisError) as error:
            open_already.enqueue("work")
        refused.append(error.value)

    with testing.use(make_app()):
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
        asyncio.run(others())
    assert [parse_redis_url(redis_url).address] == [error.address for error in refused]
    open_already.enqueue("work")
    open_already.close()
    assert 1 == redis_client.llen("asynq:{default}:pending")


def test_another_redis_can_be_allowed(redis_url: str, redis_client: RedisClient) -> None:
    """For a test of code that moves tasks between two."""
    with testing.use(make_app(), allow=[redis_url]), sync.Client(redis_url) as client:
        client.ping()


def test_an_error_names_the_address_without_the_password() -> None:
    """The error also names the ways out, such as `allow=`."""
    with (
        testing.use(make_app()),
        sync.Client("redis://:secret@production:6380/0") as client,
        pytest.raises(ForeignRedisError, match=r"production:6380.*allow=") as error,
    ):
        client.ping()
    assert "secret" not in str(error.value)


def test_each_kit_begins_with_an_empty_database_of_its_own() -> None:
    """Also inside another one, whose time goes its own way."""
    one, two = make_app(), make_app()
    with sound_kit(one) as first:
        one.enqueue_sync("a")
        with sound_kit(two) as second:
            assert first.url != second.url
            assert [] == second.enqueued()
            two.enqueue_sync("b")
            second.pass_time(days=1)
            assert second.now > first.now
        first.assert_enqueued("a", count=1)
        with redis.Redis.from_url(second.url) as client:
            assert 0 == client.dbsize()


def test_an_app_has_one_kit_at_a_time_and_a_kit_one_block() -> None:
    """Two would not know whose turn it is."""
    app = make_app()
    with sound_kit(app) as kit:
        with pytest.raises(ConfigurationError, match="in use by a test kit already"), testing.use(app):
            pass
        kit.drain_sync()
    with pytest.raises(ServerStateError, match="used once"):
        kit.__enter__()


@pytest.mark.single_server("a kit takes a database of a server")
def test_a_named_database_must_hold_nothing_but_tests(
    redis_url: str, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is emptied; what a test that was killed has left there does no harm."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    app = make_app()
    redis_client.set("orders", "of customers")
    with (
        pytest.raises(ConfigurationError, match="holds keys that are not a test's"),
        testing.use(app, url=redis_url),
    ):
        pass
    assert b"of customers" == redis_client.get("orders")
    redis_client.set("pyasynq:testing", "")
    with sound_kit(app, url=redis_url) as kit:
        assert not redis_client.exists("orders")
        kit.sync_client.enqueue("work")
    assert 0 == redis_client.dbsize()


@pytest.mark.single_server("a kit takes a database of a server")
def test_processes_of_xdist_have_databases_of_their_own(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from the one that is named."""
    urls = []
    for worker in ("gw0", "gw3", "master"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        with testing.use(make_app(), url=f"{redis_url}?db=1") as kit:
            urls.append(kit.url.rpartition("?")[2])
    assert ["db=1", "db=4", "db=1"] == urls


def test_the_url_of_an_embedded_server_is_not_for_tests() -> None:
    """That is data of a developer."""
    with (
        pytest.raises(ConfigurationError, match="leave the url out"),
        testing.use(make_app(), url="embedded://./data"),
    ):
        pass


def test_a_cluster_is_not_for_tests() -> None:
    """It has one database, which is everybody's."""
    with (
        pytest.raises(ConfigurationError, match=r"h1:6379,h2:6379 is a cluster,.* leave the url out"),
        testing.use(make_app(), url="redis-cluster://:secret@h1,h2"),
    ):
        pass


def test_sixteen_kits_at_once_are_the_most() -> None:
    """A server has as many databases; the seventeenth hears why it gets none."""
    with ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(testing.use(do_nothing))
        with pytest.raises(ConfigurationError, match="16 test kits"), testing.use(do_nothing):
            pass
    with testing.use(do_nothing):
        pass


def test_the_server_can_be_stopped_and_starts_again() -> None:
    """The next test needs no more than the first."""
    testing.stop_server()
    testing.stop_server()
    with testing.use(make_app()) as kit, sync.Client(kit.url) as client:
        client.ping()


@run_async
async def test_a_server_of_the_app_serves_the_tests_database() -> None:
    """For a view that waits for its task: a real worker runs next to the test, with the clock of the kit."""
    app = make_app()
    ran = asyncio.Event()

    @app.task("work")
    async def work() -> None:
        ran.set()

    async with testing.use(app) as kit:
        server = app.server(ServerConfig(queues={"default": 1}))
        await server.start(app)
        await work.enqueue()
        await ran.wait()
        await server.shutdown()
        assert [] == kit.enqueued()
        assert 1 == kit.inspector.queue_info("default").processed_total


def test_an_app_without_a_url_can_be_under_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets one from the environment in production."""
    monkeypatch.delenv("PYASYNQ_REDIS_URL", raising=False)
    app = App()
    with testing.use(app) as kit:
        app.enqueue_sync("work")
        kit.assert_enqueued("work")
    with pytest.raises(ConfigurationError, match="no Redis URL"):
        app.enqueue_sync("work")


def test_an_app_shows_where_it_is() -> None:
    """Its address within the block is that of the test."""
    app = make_app()
    with testing.use(app) as kit:
        assert kit.url.partition("?")[0].removeprefix("unix://") in repr(app)
    assert "production.invalid" in repr(app)
    assert NOWHERE == app.url
