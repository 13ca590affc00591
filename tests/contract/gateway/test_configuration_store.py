"""Configurations of a file in Redis: stored, followed by other instances, and applied to queues."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pyasynq import Client
from pyasynq._wire.keys import queue_keys
from pyasynq.gateway.configurations import ConfigurationStore, parse_service_file
from pyasynq.operations import Operator, User
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.usefixtures("redis_client")
SERVICE = User.with_role("service", "admin")


def operator_of(redis_url: str) -> Operator:
    """Return the operator of an instance."""
    return Operator(redis_url, SERVICE)


def limits_of(client: RedisClient, queue: str) -> dict[bytes, bytes]:
    """Return the stored limits of a queue, which may have no task yet."""
    fields = client.hgetall(queue_keys(queue).limits)
    return {name: value for name, value in fields.items() if name != b"full_at"}


@run_async
async def test_limits_that_are_stored_are_not_set_again(redis_client: RedisClient, redis_url: str) -> None:
    """Each instance looks at its start, and the audit stays short."""
    async with operator_of(redis_url) as operator, Client(redis_url) as client:
        await client.enqueue("dump", queue="dump")
        await ConfigurationStore(operator).write_file(
            parse_service_file([{"name": "dump", "max_run": 3}]).tasks
        )
        for _ in range(2):
            assert await ConfigurationStore(operator).refresh()

        verbs = [entry.verb for entry in (await operator.audit()).entries]

    assert ["set_queue_limits", "set_type_configuration"] == verbs
    assert {b"concurrency": b"3"} == limits_of(redis_client, "dump")


@run_async
async def test_a_file_is_stored_and_its_limits_are_set(redis_client: RedisClient, redis_url: str) -> None:
    """Every worker of the queues obeys; writing the file again changes nothing."""
    tasks = parse_service_file(
        {"tasks": {"dump": {"MaxRun": 3}, "deliver": {"ordered": True}, "mail": {"rate": "50/m+10"}}}
    ).tasks
    async with operator_of(redis_url) as operator:
        store = ConfigurationStore(operator)
        await store.write_file(tasks)

        assert await store.refresh()

        assert tasks == {name: one for name, (one, _) in store.types.items()}
        await store.write_file(tasks)
        assert not await store.refresh()
    assert {b"concurrency": b"3"} == limits_of(redis_client, "dump")
    assert {b"ordered": b"1"} == limits_of(redis_client, "deliver")
    assert {b"rate": b"50.0", b"period": b"60.0", b"burst": b"10"} == limits_of(redis_client, "mail")


@run_async
async def test_another_instance_follows_a_change(redis_client: RedisClient, redis_url: str) -> None:
    """It sets the limits of changed types only, and forgets deleted types."""
    async with operator_of(redis_url) as operator:
        store = ConfigurationStore(operator)
        await store.write_file(parse_service_file([{"name": "dump", "max_run": 3}, {"name": "mail"}]).tasks)
        await store.refresh()
        await operator.set_queue_limits("mail", max_run=7)

        await operator.set_type_configuration("dump", {"max_run": 5})
        assert await store.refresh()

        assert 5 == store.types["dump"][0].max_run
        assert {b"concurrency": b"5"} == limits_of(redis_client, "dump")
        assert {b"concurrency": b"7"} == limits_of(redis_client, "mail")
        await operator.delete_type_configuration("dump")
        assert await store.refresh()
        assert ["mail"] == list(store.types)


@pytest.mark.parametrize(("managed", "max_run"), [("api", 9), ("file", 3)])
@run_async
async def test_the_stored_configuration_wins_where_the_api_manages_it(
    redis_url: str, managed: str, max_run: int
) -> None:
    """A file is only the first configuration of such a type."""
    tasks = parse_service_file([{"name": "dump", "max_run": 3, "managed": managed}]).tasks
    async with operator_of(redis_url) as operator:
        store = ConfigurationStore(operator)
        await store.write_file(tasks)
        await operator.set_type_configuration("dump", {"max_run": 9, "managed": "api"})

        await store.write_file(tasks)
        await store.refresh()

        assert max_run == store.types["dump"][0].max_run


@run_async
async def test_a_configuration_that_cannot_be_read_is_left_out(
    redis_url: str, redis_client: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A later version has written it; the other types go on."""
    async with operator_of(redis_url) as operator:
        await operator.set_type_configuration("later", {"kind": "later"})
        await operator.set_type_configuration("sound", {"max_run": 1})
        store = ConfigurationStore(operator)

        with caplog.at_level(logging.WARNING):
            await store.refresh()

    assert ["sound"] == list(store.types)
    assert "later is left out: configuration.kind" in caplog.text
    assert not redis_client.exists("asynq:{later}:x:limits")
