"""The rights that docs/redis.md lists: they are enough, and each of them is needed."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from pyasynq import sync
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.subscription import Subscription
from pyasynq._redis.url import parse_redis_url
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.errors import PyasynqError, RedisPermissionError, SkipRetry
from pyasynq.events import Outcome, RedisWarning, RoundFailed
from pyasynq.operations import User
from pyasynq.operations import sync as blocking
from tests.contract import rights
from tests.contract.test_read_from_replica import WRITES, read_everything
from tests.fix_engine import serving
from tests.redis_6 import is_redis_6
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from pyasynq._redis.plan import Plan
    from pyasynq.task import Task

pytestmark = pytest.mark.single_server("a cluster needs more, and test_cluster_rights is about that")

DOCUMENT = (Path(__file__).parents[2] / "docs" / "redis.md").read_text(encoding="utf-8")
OPTIONAL = {"info", "script|load", "client|setname", "client|tracking", "slowlog|get"}
"""What the drivers can do without, with a warning or in another way."""
ELSEWHERE = {"subscribe"}
"""What is not asked for by a plan."""
WORK: dict[str, Callable[[], list[Plan[Any]]]] = {
    "producer": rights.producer_work,
    "worker": rights.worker_work,
    "scheduler": rights.scheduler_work,
    "waiter": rights.waiter_work,
    "viewer": rights.viewer_work,
    "doctor": rights.doctor_work,
    "publisher": rights.publisher_work,
    "follower": rights.follower_work,
}


def rules(user: str) -> list[str]:
    """Return what the document says after `ACL SETUSER <user>`, less the password."""
    [text] = re.findall(rf"ACL SETUSER {user} on >PASSWORD (.*?)```", DOCUMENT, re.DOTALL)
    return str(text).split()


def commands(user: str) -> list[str]:
    """Return the commands that a user may run."""
    return [rule[1:] for rule in rules(user) if rule.startswith("+") and not rule.startswith("+@")]


@pytest.fixture
def admin(redis_client: redis.Redis, damage_allowed: None) -> Iterator[redis.Redis]:
    """A client that may do everything; users of the test are gone after it."""
    yield redis_client
    redis_client.acl_deluser("tasks", *WORK)


def as_user(admin: redis.Redis, url: str, user: str, *more: str) -> str:
    """Make a user by the document's rules, and return the URL with its login."""
    command: Any = admin.execute_command
    command("ACL", "SETUSER", user, "reset", "on", ">p%40/w", *rules(user), *more)
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}:p%2540%2Fw@{parts.netloc.rpartition('@')[2]}").geturl()


def perform(url: str, user: str, **settings: Any) -> None:
    """Do all that this user's programs do."""
    driver = BlockingDriver(parse_redis_url(url), **settings)
    try:
        for plan in WORK[user]():
            driver.run(plan)
    finally:
        driver.close()


def prepare(admin: redis.Redis) -> None:
    """Put into Redis what a worker works on, and have the scripts there."""
    admin.flushall()
    rights.prepare_worker(admin)


def used(admin: redis.Redis) -> set[str]:
    """Return the commands that have run since the statistics were reset."""
    return {name.removeprefix("cmdstat_") for name in admin.info("commandstats")}


@pytest.mark.single_server("replicas and Sentinels use commands of their own")
@pytest.mark.parametrize("user", WORK)
def test_the_documented_rights_are_enough_and_none_is_superfluous(
    admin: redis.Redis, redis_url: str, user: str
) -> None:
    """Each right is used at least once; no warning is given."""
    if is_redis_6(admin):
        pytest.skip("only on servers whose statistics name subcommands")
    url = as_user(admin, redis_url, user)
    prepare(admin)
    admin.config_resetstat()
    warnings: list[RedisWarning] = []
    perform(url, user, on_warning=warnings.append)
    administration = {"config|resetstat", "auth", "select", "client|setinfo"}
    assert set(commands(user)) - ELSEWHERE - {"client|tracking"} == used(admin) - administration
    assert [] == warnings


@pytest.mark.parametrize("user", WORK)
def test_a_right_that_is_missing_is_named(admin: redis.Redis, redis_url: str, user: str) -> None:
    """Whichever it is, be it for a command inside a script."""
    named = {}
    taken_away = set(commands(user)) - OPTIONAL - ELSEWHERE
    if admin.info("server")["redis_version"].startswith("6."):
        # A subcommand cannot be taken away there.
        taken_away = {command for command in taken_away if "|" not in command}
    for command in taken_away:
        url = as_user(admin, redis_url, user, f"-{command}")
        prepare(admin)
        with pytest.raises(RedisPermissionError) as error:
            perform(url, user)
        named[command] = str(error.value).partition("; a user for pyasynq")[0]
    assert {} == {command: text for command, text in named.items() if f"'{command}'" not in text}


def test_the_right_to_subscribe_is_named(admin: redis.Redis, redis_url: str) -> None:
    """A worker hears of cancellations by it."""

    async def enter(url: str) -> None:
        async with Subscription(parse_redis_url(url), "asynq:cancel"):
            pass

    asyncio.run(enter(as_user(admin, redis_url, "worker")))
    for rule in ("-subscribe", "resetchannels"):
        with pytest.raises(RedisPermissionError, match="SUBSCRIBE asynq:cancel"):
            asyncio.run(enter(as_user(admin, redis_url, "worker", rule)))


def test_keys_of_others_are_out_of_reach(admin: redis.Redis, redis_url: str) -> None:
    """The error says so, and which rule lets pyasynq in."""
    url = as_user(admin, redis_url, "producer", "resetkeys", "~mine:*")
    with pytest.raises(RedisPermissionError, match=r"access .*key.*~asynq:\*"):
        perform(url, "producer")


@pytest.mark.parametrize("user", ["worker", "tasks"])
@run_async
async def test_a_whole_server_works_with_the_documented_rights(
    admin: redis.Redis, redis_url: str, user: str
) -> None:
    """No round of a service fails, no warning is given, and it is told of new tasks."""
    url = as_user(admin, redis_url, user)

    async def handle(task: Task) -> None:
        await context().write_result(b"r")
        if task.type == "fails":
            raise ValueError("no")
        if task.type == "skips":
            raise SkipRetry("no")

    config = ServerConfig(concurrency=5, shutdown_timeout=5, retry_delay=lambda retried, error, task: 0)
    async with serving(url, handle, config) as running:
        kinds = ("runs", "fails", "skips")
        for kind in kinds:
            await running.client.enqueue(kind, task_id=kind, max_retry=1, retention=60)
        assert Outcome.SUCCEEDED is (await running.finished("runs")).outcome
        assert Outcome.ARCHIVED is (await running.finished("skips")).outcome
        assert Outcome.ARCHIVED is (await running.finished("fails", retried=1)).outcome
        await running.settled()
        for service in ("recoverer", "forwarder", "heartbeater"):
            await running.next_round(service)
        assert [] == running.recorder.of(RoundFailed)
        assert [] == running.recorder.of(RedisWarning)


def test_a_viewer_reads_everything_and_changes_nothing(admin: redis.Redis, redis_url: str) -> None:
    """The whole read side of the inspector; each method that writes is refused, and the right is named."""
    prepare(admin)
    url = as_user(admin, redis_url, "viewer")
    with sync.Inspector(url) as inspector:
        read_everything(inspector)
        before = {key: admin.dump(key) for key in admin.scan_iter()}
        for method, arguments in WRITES.items():
            with suppress(PyasynqError):
                getattr(inspector, method)(*arguments)
        with pytest.raises(RedisPermissionError, match=r"'(get|del|set)'"):
            inspector.pause_queue("default")
    assert before == {key: admin.dump(key) for key in admin.scan_iter()}


def test_what_a_viewer_may_not_ask_of_redis_is_left_out_and_named(admin: redis.Redis, redis_url: str) -> None:
    """The least rights have INFO; with more of them there is more to see."""
    url = as_user(admin, redis_url, "viewer")
    with (
        sync.Inspector(url) as inspector,
        blocking.Operator(url, User.with_role("root", "admin")) as operator,
    ):
        report = inspector.redis_report()
        [node] = report.nodes
        assert ("+client|list", "+slowlog|get") == report.missing_rights
        assert (None, None, "master") == (node.clients, node.slow_calls, node.info["role"])
        assert report == replace(operator.redis_report(), nodes=report.nodes)
        as_user(admin, redis_url, "viewer", "-info")
        report = inspector.redis_report()
        assert ("+info", "+client|list", "+slowlog|get") == report.missing_rights
        assert {} == report.nodes[0].info


def test_with_all_rights_nothing_is_left_out(admin: redis.Redis, redis_url: str) -> None:
    """Connections are counted by their names, and slow scripts are told; other calls are not."""
    url = as_user(admin, redis_url, "viewer", "+client|list", "+slowlog|get")
    admin.config_set("slowlog-log-slower-than", 0)
    try:
        with sync.Inspector(url, client_name="looker") as inspector:
            inspector.queue_infos()
            report = inspector.redis_report()
    finally:
        admin.config_set("slowlog-log-slower-than", 10_000)
    [node] = report.nodes
    assert () == report.missing_rights
    assert "looker" in (node.clients or {})
    assert node.slow_calls is not None
    assert (urlsplit(redis_url).path or urlsplit(redis_url).netloc) in node.address
