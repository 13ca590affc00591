from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._redis.script import Script, ScriptForm
from pyasynq.errors import (
    ClientClosedError,
    RedisAuthenticationError,
    RedisOutOfMemoryError,
    RedisPermissionError,
    RedisReplyError,
    RedisUnavailableError,
)
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.events import RedisWarning
    from tests.fix_drivers import DriverFace, OwnServer

    MakeDriver = Callable[..., DriverFace]


def form(text: str) -> ScriptForm:
    """Make the form of a text."""
    return ScriptForm(text.encode())


def lua(body: str) -> Script:
    """Make a script."""
    return Script("test/script", False, form(body), form(body))


INCREMENT = lua("return redis.call('INCRBY', KEYS[1], ARGV[2])")


def increment(by: int = 1, replay: Replay = Replay.NEVER) -> Plan[int]:
    """Add to a counter, and return its value."""
    value = yield ScriptCall(INCREMENT, ("{q}:n",), ("0", by), replay)
    return int(value)


def run(*words: str | int, replay: Replay = Replay.NEVER) -> Plan[Any]:
    """Run a plain command."""
    return (yield CommandCall(words, None, replay))


def test_a_plan_returns_what_it_makes_of_the_replies(make_driver: MakeDriver, redis_url: str) -> None:
    """The script is loaded by itself, on a server that has never seen it."""
    driver = make_driver(redis_url)
    assert [1, 3] == [driver.run(increment(1)), driver.run(increment(2))]


def test_a_batch_gives_each_plan_its_result_or_its_error(make_driver: MakeDriver, redis_url: str) -> None:
    """A wrong type hits one plan of three."""
    driver = make_driver(redis_url)
    first, failed, third = driver.run_batch([run("SET", "k", "v"), run("LPUSH", "k", "x"), run("GET", "k")])
    assert (b"OK", b"v") == (first, third)
    assert isinstance(failed, RedisReplyError)
    assert "WRONGTYPE" in str(failed)


def test_an_error_is_raised_by_run(make_driver: MakeDriver, redis_url: str) -> None:
    """It names the command."""
    with pytest.raises(RedisReplyError, match="NOSUCHCOMMAND"):
        make_driver(redis_url).run(run("NOSUCHCOMMAND"))


def test_after_script_flush_only_the_scripts_go_again(make_driver: MakeDriver, redis_url: str) -> None:
    """The plain command of the batch runs once, the scripts run once each."""
    driver = make_driver(redis_url)
    driver.run(increment())
    driver.run(run("SCRIPT", "FLUSH"))
    assert [1, 2, 3] == driver.run_batch([run("INCR", "other"), increment(), increment()])


@pytest.mark.single_server("it looks at the connection of the driver")
def test_a_killed_connection_is_replaced(make_driver: MakeDriver, redis_url: str) -> None:
    """It was idle when the server closed it, so even what may never be replayed goes on."""
    driver = make_driver(redis_url, client_name="victim")
    driver.run(increment())
    with redis.Redis.from_url(redis_url) as other:
        victims = [one for one in other.client_list() if one["name"] == "victim"]
        for victim in victims:
            other.client_kill_filter(_id=victim["id"])
        assert 1 == len(victims)
        while any(one["name"] == "victim" for one in other.client_list()):
            pass
    # An event loop sees the end of a stream only when it looks; a replayable call does not depend on that.
    assert 3 == driver.run(increment(2, Replay.SAFE))


def test_a_restarted_server_is_found_again(make_driver: MakeDriver, own_server: OwnServer) -> None:
    """Also while it is still starting; its script cache is empty."""
    driver = make_driver(own_server.url)
    assert 1 == driver.run(increment())
    own_server.stop()
    own_server.start()
    assert 1 == driver.run(increment(1, Replay.SAFE))


def test_an_unreachable_server_is_named_and_given_up_after_the_time_out(make_driver: MakeDriver) -> None:
    """Nothing was sent, so the error says that nothing was done."""
    driver = make_driver("redis://:secret@127.0.0.1:1/0", timeout=0.2)
    before = time.monotonic()
    with pytest.raises(RedisUnavailableError, match=r"127\.0\.0\.1:1 ") as error:
        driver.run(increment())
    assert 0.1 < time.monotonic() - before < PATIENCE
    assert "secret" not in str(error.value)
    assert "127.0.0.1:1" == error.value.address


def test_a_wrong_password_is_an_error_at_once(make_driver: MakeDriver, own_server: OwnServer) -> None:
    """So is a missing one; neither is tried until the time-out."""
    make_driver(own_server.url).run(run("CONFIG", "SET", "requirepass", "right"))
    before = time.monotonic()
    for login in ("", ":wrong@", "nobody:right@"):
        with pytest.raises(RedisAuthenticationError):
            make_driver(own_server.url.replace("unix://", f"unix://{login}"), timeout=10 * PATIENCE).run(
                increment()
            )
    assert time.monotonic() - before < PATIENCE
    assert 1 == make_driver(own_server.url.replace("unix://", "unix://:right@")).run(increment())


def with_user(make_driver: MakeDriver, server: OwnServer, *rules: str, **settings: Any) -> DriverFace:
    """Make a user of these rules, and a driver that logs in as that user."""
    make_driver(server.url).run(run("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", *rules))
    return make_driver(server.url.replace("unix://", "unix://bob:pw@"), **settings)


def test_a_missing_right_is_named(make_driver: MakeDriver, own_server: OwnServer) -> None:
    """The command that the user may not run, be it ours or one inside a script."""
    driver = with_user(make_driver, own_server, "-evalsha", "-get")
    with pytest.raises(RedisPermissionError, match="'evalsha'"):
        driver.run(increment())
    with pytest.raises(RedisPermissionError, match="'get'"):
        driver.run(run("GET", "k"))


def test_a_right_that_a_script_lacks_is_a_permission_error(
    make_driver: MakeDriver, own_server: OwnServer
) -> None:
    """It names the script."""
    driver = with_user(make_driver, own_server, "-incrby")
    with pytest.raises(RedisPermissionError, match="test/script"):
        driver.run(increment())


def test_a_server_that_refuses_administration_costs_one_warning(
    make_driver: MakeDriver, own_server: OwnServer
) -> None:
    """Managed servers refuse CLIENT, CONFIG, SLOWLOG and SCRIPT, proxies HELLO; everything still works."""
    warnings: list[RedisWarning] = []
    driver = with_user(
        make_driver,
        own_server,
        *("-client", "-config", "-slowlog", "-script", "-hello", "-info"),
        on_warning=warnings.append,
    )
    assert [1, 2] == [driver.run(increment()), driver.run(increment())]
    make_driver(own_server.url).run(run("SCRIPT", "FLUSH"))
    assert 3 == driver.run(increment())
    assert 1 == len(warnings)
    assert "CLIENT" in warnings[0].message


def test_h25_a_full_redis_has_an_error_of_its_own(make_driver: MakeDriver, own_server: OwnServer) -> None:
    """Out of memory is told apart from all other refusals, for commands and inside scripts."""
    driver = make_driver(own_server.url)
    driver.run(increment())
    driver.run(run("CONFIG", "SET", "maxmemory", 1))
    for plan in (increment(), run("SET", "k", "v")):
        with pytest.raises(RedisOutOfMemoryError):
            driver.run(plan)


@pytest.mark.single_server("it looks at the connection of the driver")
def test_after_close_nothing_runs(make_driver: MakeDriver, redis_url: str) -> None:
    """Closing twice is harmless, and closes the connections."""
    driver = make_driver(redis_url, client_name="closing")
    driver.run(increment())
    driver.close()
    driver.close()
    with pytest.raises(ClientClosedError, match="has been closed"):
        driver.run(increment())
    with redis.Redis.from_url(redis_url) as other:
        while any(one["name"] == "closing" for one in other.client_list()):
            pass


@pytest.mark.single_server("it looks at the connection of the driver")
def test_connections_have_a_name_and_speak_resp2(make_driver: MakeDriver, redis_url: str) -> None:
    """`CLIENT LIST` shows who is connected; redis-py's introduction of itself is off."""
    driver = make_driver(redis_url, client_name="me")
    driver.run(increment())
    with redis.Redis.from_url(redis_url) as other:
        [mine] = [one for one in other.client_list() if one["name"] == "me"]
    assert ("2", "") == (mine.get("resp", "2"), mine.get("lib-name", ""))
