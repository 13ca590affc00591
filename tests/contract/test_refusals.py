"""Servers that refuse a part of Redis: everything works, less of it at once, and one warning says so."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.doctor import Doctor
from pyasynq.errors import RedisPermissionError
from pyasynq.events import Outcome, RedisWarning, RoundFailed, TaskRecovered
from tests.factories import Tasks
from tests.fix_engine import QUICK, serving
from tests.invariants import check_invariants
from tests.redis_6 import is_redis_6
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.task import Task
    from tests.fix_drivers import ClientFace, OwnServer
    from tests.fix_engine import Running
    from tests.fix_proxy import Proxy
    from tests.invariants import RedisClient

SETTINGS = dataclasses.replace(QUICK, lease=30)
POLLED = ServerConfig(
    concurrency=5,
    shutdown_timeout=5,
    task_check_interval=0.05,
    delayed_task_check_interval=0.05,
    retry_delay=lambda retried, error, task: 0,
)
BOB = (
    "bob",
    "on",
    ">pw",
    "~*",
    "&*",
    "+@all",
    "-config",
    "-client",
    "-slowlog",
    "-script",
    "-@admin",
    "+info",
)
PAGE = Path(__file__).parents[2] / "docs" / "redis.md"
WARNINGS = {
    code: re.escape(message).replace("…", ".+")
    for code, message in re.findall(r"^- `(\w+)`: `(.+)`$", PAGE.read_text("utf-8"), re.MULTILINE)
}
PLAIN_RESP2 = ("--rename-command", "HELLO", "")


async def work(running: Running) -> None:
    """Have tasks succeed, fail and be tried again, be archived, and be woken from an empty queue."""
    await running.client.enqueue("runs", task_id="first", retention=60)
    assert Outcome.SUCCEEDED is (await running.finished("first")).outcome
    await running.client.enqueue("fails", task_id="fails", max_retry=1)
    assert Outcome.RETRIED is (await running.finished("fails")).outcome
    assert Outcome.ARCHIVED is (await running.finished("fails", retried=1)).outcome
    for number in range(3):  # each finds the queue empty
        await running.settled()
        await running.client.enqueue("runs", task_id=f"later-{number}")
        assert Outcome.SUCCEEDED is (await running.finished(f"later-{number}")).outcome
    await running.settled()
    await running.next_round("heartbeater")
    await running.next_round("recoverer")


async def handle(task: Task) -> None:
    """Fail if the type says so; otherwise leave a result."""
    if task.type == "fails":
        raise ValueError("no")
    await context().write_result(b"r")


@run_async
async def test_h22_a_managed_server_costs_one_warning_each_way(own_server: OwnServer) -> None:
    """Without CONFIG, CLIENT, SLOWLOG and SCRIPT: names and wake-up are missing, and nothing else is."""
    with own_server.connect() as admin:
        admin.acl_setuser(
            "bob", enabled=True, passwords=["+pw"], keys=["*"], channels=["*"], categories=["+@all"]
        )
        admin.execute_command("ACL", "SETUSER", *BOB)
        url = own_server.url.replace("unix://", "unix://bob:pw@")
        async with serving(url, handle, POLLED, SETTINGS) as running:
            await work(running)
            warnings = running.recorder.of(RedisWarning)
            assert ["command_refused", "wakeup_refused"] == sorted(warning.code for warning in warnings)
            assert WARNINGS.keys() == {warning.code for warning in warnings}
            for warning in warnings:
                assert re.fullmatch(WARNINGS[warning.code], warning.message), "docs/redis.md says otherwise"
            assert [] == running.recorder.of(RoundFailed)
        check_invariants(admin)


@run_async
async def test_a_server_without_resp3_costs_one_warning(own_server: OwnServer) -> None:
    """A proxy that speaks RESP2 only: idle servers poll."""
    own_server.stop()
    own_server.start(*PLAIN_RESP2)
    own_server.connect().close()
    async with serving(own_server.url, handle, POLLED, SETTINGS) as running:
        await work(running)
        assert ["wakeup_refused"] == [warning.code for warning in running.recorder.of(RedisWarning)]
        assert [] == running.recorder.of(RoundFailed)


@pytest.mark.parametrize(
    ("hidden", "warned"),
    [
        (["HELLO"], ["wakeup_refused"]),
        (["CLIENT"], ["command_refused", "wakeup_refused"]),
        (["INFO"], ["command_refused"]),
        (["SCRIPT"], []),
        (["HELLO", "CLIENT", "INFO", "SCRIPT", "CONFIG", "SLOWLOG"], ["command_refused", "wakeup_refused"]),
    ],
    ids=",".join,
)
@run_async
async def test_a_proxy_that_does_not_know_a_command_costs_at_most_its_warning(
    proxy: Proxy, redis_client: RedisClient, hidden: list[str], warned: list[str]
) -> None:
    """An unknown command is refused as a forbidden one is."""
    proxy.hide(*hidden)
    async with serving(proxy.url, handle, POLLED, SETTINGS) as running:
        await work(running)
        warnings = running.recorder.of(RedisWarning)
        assert warned == sorted(warning.code for warning in warnings)
        for warning in warnings:
            assert re.fullmatch(WARNINGS[warning.code], warning.message), "docs/redis.md says otherwise"
        assert [] == running.recorder.of(RoundFailed)
    assert 1 == redis_client.exists("asynq:queues")


@run_async
async def test_the_doctor_does_without_commands_that_a_proxy_does_not_know(
    proxy: Proxy, redis_client: RedisClient
) -> None:
    """It says what it did not look for."""
    proxy.hide("INFO", "SLOWLOG", "CLIENT")
    Tasks(redis_client).pending("1")
    async with Doctor(proxy.url) as doctor:
        assert [] == await doctor.examine()
        assert 2 == len(doctor.skipped)
        assert "slow scripts: this server, or a proxy before it, does not know SLOWLOG" in doctor.skipped


@pytest.mark.parametrize("right", ["-info", "-client|tracking", "-client|setname"])
@run_async
async def test_a_missing_right_costs_its_warning(own_server: OwnServer, right: str) -> None:
    """One at a time; tasks run all the same."""
    with own_server.connect() as admin:
        if is_redis_6(admin) and "|" in right:
            pytest.skip("only on servers that can take away a subcommand alone")
        admin.execute_command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", right)
        url = own_server.url.replace("unix://", "unix://bob:pw@")
        async with serving(url, handle, POLLED, SETTINGS) as running:
            await work(running)
            [warning] = running.recorder.of(RedisWarning)
            assert ("wakeup_refused" if "tracking" in right else "command_refused") == warning.code
            assert [] == running.recorder.of(RoundFailed)
        check_invariants(admin)


def test_scripts_that_may_only_be_called_by_name_must_be_there(
    own_server: OwnServer, make_client: Callable[..., ClientFace]
) -> None:
    """Without SCRIPT and EVAL the error names what is missing; once others have loaded them it works."""
    with own_server.connect() as admin:
        admin.execute_command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "+@all", "-script", "-eval")
        client = make_client(own_server.url.replace("unix://", "unix://bob:pw@"))
        with pytest.raises(RedisPermissionError, match="'eval' command"):
            client.enqueue("t", task_id="1")
        make_client(own_server.url).enqueue("t", task_id="2")
        client.enqueue("t", task_id="3")
        assert ["2", "3"] == sorted(Tasks(admin).ids("pending"))


@pytest.mark.parametrize("database", [0, 5])
@pytest.mark.parametrize("login", ["", "al%40ice:p%2Fw%3A%25%23%C3%A9@"])
@run_async
async def test_a_whole_server_works_on_a_unix_socket_in_a_database(
    own_server: OwnServer, database: int, login: str
) -> None:
    """With a login of special characters or without; nothing is left in another database."""
    with own_server.connect() as admin:
        command = ("ACL", "SETUSER", "al@ice", "on", ">p/w:%#é", "~*", "&*", "+@all")
        admin.execute_command(*command)
        url = own_server.url.replace("unix://", f"unix://{login}") + f"?db={database}"
        async with serving(url, handle, POLLED, SETTINGS) as running:
            await work(running)
            assert [] == running.recorder.of(RedisWarning)
            assert [] == running.recorder.of(RoundFailed)
        assert [f"db{database}"] == list(admin.info("keyspace"))


@run_async
async def test_a_dead_workers_task_is_recovered_on_a_managed_server(own_server: OwnServer) -> None:
    """Scripts travel as text there, also those that are rarely needed."""
    with own_server.connect() as admin:
        admin.execute_command("ACL", "SETUSER", *BOB)
        Tasks(admin).active("dead", token="gone/1", lease=1_000_000_000)
        url = own_server.url.replace("unix://", "unix://bob:pw@")
        settings = dataclasses.replace(SETTINGS, lease=1)
        async with serving(url, handle, POLLED, settings) as running:
            assert "dead" == (await running.recorder.wait(TaskRecovered)).task_id
            assert Outcome.SUCCEEDED is (await running.finished("dead")).outcome
            await running.settled()
