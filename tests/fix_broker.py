"""Fixtures of contract tests: drivers that run plans, and a client that reads the result from Redis."""

from __future__ import annotations

import asyncio
import os
import zlib
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest
from redis.exceptions import NoScriptError, ResponseError

from pyasynq._redis.driver import AsyncDriver, BlockingDriver
from pyasynq._redis.plan import Call, DurableCall, Plan, Replay, ScriptCall
from pyasynq._redis.reply_errors import reply_error, translate
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import RedisError
from tests.cluster_client import ClusterClient, client_of, raw
from tests.factories import Tasks
from tests.invariants import RedisClient, check_invariants
from tests.redis_6 import is_redis_6

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")


class Perform(Protocol):
    """Protocol of a function that runs a plan and returns its result."""

    def __call__(self, plan: Plan[T]) -> T: ...


class BlockingPerformer:
    """The simplest possible driver: one call after another over one connection.

    `flags` is False for a server without support for the flags line of scripts; by default the server is
    queried. With `replay`, each call is sent twice, as after a lost reply, and only the second reply is seen.
    `calls` records the calls that were sent.
    """

    def __init__(self, client: RedisClient, *, flags: bool | None = None, replay: bool = False) -> None:
        self._client = client
        self._flags = not is_redis_6(client) if flags is None else flags
        self._replay = replay
        self.calls: list[Call] = []

    def __call__(self, plan: Plan[T]) -> T:
        try:
            call = next(plan)
            while True:
                try:
                    reply = self._send(call)
                except RedisError as error:
                    call = plan.throw(error)
                else:
                    call = plan.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result

    def _send(self, call: Call) -> Any:
        self.calls.append(call)
        reply = self._send_once(call)
        if not self._replay:
            return reply
        assert call.replay is not Replay.NEVER
        if isinstance(call, ScriptCall) and call.replay is Replay.BY_TOKEN:
            call = call._replace(args=("1", *call.args[1:]))
        return self._send_once(call)

    def _send_once(self, call: Call) -> Any:
        try:
            assert not isinstance(call, DurableCall)  # only drivers know these calls
            if not isinstance(call, ScriptCall):
                return self._exchange(call, *call.command)
            form = call.script.form(self._flags)
            arguments = (len(call.keys), *call.keys, *call.args)
            try:
                return self._exchange(call, "EVALSHA", form.sha, *arguments)
            except NoScriptError:
                return self._exchange(call, "EVAL", form.text, *arguments)
        except ResponseError as error:
            raise translate(reply_error(error), "this call") from error

    def _exchange(self, call: Call, *command: Any) -> Any:
        client = self._client
        if isinstance(client, ClusterClient):
            client = client.find_node(call.keys[0] if isinstance(call, ScriptCall) else call.key)
        return raw(client, *command)


class Drivers:
    """The four ways in which drivers run plans."""

    def __init__(self, url: str) -> None:
        target = parse_redis_url(url)
        self._runner = asyncio.Runner()
        self._blocking = BlockingDriver(target)
        self._async = AsyncDriver(target)

    def close(self) -> None:
        self._blocking.close()
        self._runner.run(self._async.close())
        self._runner.close()

    def run(self, plan: Plan[T]) -> T:
        return self._blocking.run(plan)

    def run_batch(self, plan: Plan[T]) -> T:
        return _only(self._blocking.run_batch([plan]))

    def run_async(self, plan: Plan[T]) -> T:
        return self._runner.run(self._async.run(plan))

    def run_batch_async(self, plan: Plan[T]) -> T:
        return _only(self._runner.run(self._async.run_batch([plan])))


def _only(results: Sequence[T | Exception]) -> T:
    [result] = results
    if isinstance(result, Exception):
        raise result
    return result


@pytest.fixture(scope="session")
def drivers(server_url: str) -> Iterator[Drivers]:
    """Drivers of this test process; their connections are made once."""
    drivers = Drivers(server_url)
    yield drivers
    drivers.close()


_ALL_WAYS = ("run", "run_batch", "run_async", "run_batch_async")
# One way of each driver tests a plan and its scripts; all four together test the drivers.
_IN_TURN = ("run", "run_batch_async")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes `perform` with one of the drivers, whichever its name says, or in all ways."""
    if "perform" in metafunc.fixturenames:
        ways: Sequence[str] = _ALL_WAYS
        if os.environ.get("PYASYNQ_TEST_DRIVERS") != "all":
            ways = (_IN_TURN[zlib.crc32(metafunc.definition.name.encode()) % len(_IN_TURN)],)
        metafunc.parametrize("perform", ways, indirect=True)


@pytest.fixture
def perform(drivers: Drivers, request: pytest.FixtureRequest, redis_client: RedisClient) -> Perform:
    """Function that runs plans: by one driver, or with PYASYNQ_TEST_DRIVERS=all by each in two ways."""
    performer: Perform = getattr(drivers, request.param)
    return performer


@pytest.fixture
def damage_allowed() -> None:
    """Marker fixture for tests that leave damaged data on purpose."""


@pytest.fixture
def redis_client(redis_url: str, request: pytest.FixtureRequest) -> Iterator[RedisClient]:
    """A client of the empty server under test; at the end, the invariants of its data are checked."""
    with client_of(redis_url) as client:
        yield client
        if "damage_allowed" not in request.fixturenames:
            check_invariants(client)


@pytest.fixture
def no_slow_scripts(redis_client: RedisClient) -> None:
    """No script of the test is a slow one: how fast they are says something about the machine."""
    redis_client.slowlog_reset()
    redis_client.config_set("slowlog-log-slower-than", -1)


@pytest.fixture
def tasks(redis_client: RedisClient) -> Tasks:
    """Factory and reader of tasks of the queue `default`."""
    return Tasks(redis_client)
