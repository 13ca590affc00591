"""Ended sessions: other processes refuse them too, what that costs Redis, and what happens without Redis."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request

from pyasynq._wire.keys import SIGNED_OUT_KEY
from pyasynq.operations import User, record_sign_out
from pyasynq.operations.operator import Operator
from pyasynq.web import CredentialsFile, dashboard
from pyasynq.web.auth import signed_out
from pyasynq.web.live import endpoints
from tests.live_stream import stream_of
from tests.people_file import PASSWORD, write_people
from tests.redis_6 import is_redis_6
from tests.run_async import run_async
from tests.visiting import ABROAD, heading_of, send_form, stream_scope, visiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from pyasynq.web import Dashboard
    from tests.invariants import RedisClient

SECRET = "a secret of all the replicas"
PAGE = (Path(__file__).parents[3] / "docs" / "dashboard.md").read_text("utf-8")
AWAY = "redis://127.0.0.1:1"
COPY_WORKS = "A copy of its cookie works at other processes of the dashboard, and after a restart"


@pytest.fixture
def people(tmp_path: Path) -> CredentialsFile:
    """A credentials file with an operator and a token."""
    return CredentialsFile(write_people(tmp_path))


@pytest.fixture
def elapsed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds by which the clock of the verdicts is ahead; a test changes the element."""
    seconds = [0.0]
    real = time.monotonic
    monkeypatch.setattr(signed_out, "monotonic", lambda: real() + seconds[0])
    return seconds


def site(redis: Any, people: CredentialsFile, **options: Any) -> Dashboard:
    """Return the dashboard as another process would have it."""
    return dashboard(redis, auth=people, secret=SECRET, **options)


def visit(redis: Any, people: CredentialsFile, **options: Any) -> Any:
    """Visit a dashboard of a process of its own."""
    return visiting(site(redis, people, **options), client=ABROAD)


async def sign_in(visitor: httpx.AsyncClient, page: str = "") -> dict[str, str]:
    """Sign in as mira, and return a copy of the cookie."""
    answer = await send_form(visitor, f"{page}login", {"name": "mira", "password": PASSWORD})
    assert 303 == answer.status_code
    return dict(visitor.cookies)


async def sign_out(visitor: httpx.AsyncClient, page: str = "") -> httpx.Response:
    """Send the form of the settings page that ends the session."""
    return await send_form(visitor, f"{page}logout", {}, page=f"{page}settings")


def count_looks(client: RedisClient) -> int:
    """Return how often it was asked since the last reset whether a session was ended."""
    stats: Any = client.info("commandstats")
    return int(stats.get("cmdstat_zscore", {}).get("calls", 0))


@run_async
async def test_an_ended_session_is_refused_by_every_process(redis_url: str, people: CredentialsFile) -> None:
    """Also by one that starts later: a stolen cookie is worth nothing after its owner has signed out."""
    async with visit(redis_url, people) as first, visit(redis_url, people) as second:
        copy = await sign_in(first)
        second.cookies.update(copy)
        assert (303, "./login") == ((answer := await sign_out(first)).status_code, answer.headers["location"])
        assert 303 == (await second.get("queues")).status_code
    async with visit(redis_url, people) as restarted:
        restarted.cookies.update(copy)
        assert "login?next=" in (await restarted.get("queues")).headers["location"]
        assert 401 == (await restarted.get("api/v1/me")).status_code
        assert 401 == (await restarted.get("api/queues")).status_code
        assert 401 == (await restarted.get("palette.json")).status_code
        restarted.cookies.clear()
        await sign_in(restarted)
        assert 200 == (await restarted.get("queues")).status_code


@run_async
async def test_a_process_believes_in_a_session_for_five_seconds(
    redis_url: str, people: CredentialsFile, elapsed: list[float]
) -> None:
    """A session that was valid a moment ago is not looked up again; then it is."""
    async with visit(redis_url, people) as first, visit(redis_url, people) as second:
        second.cookies.update(await sign_in(first))
        assert 200 == (await second.get("queues")).status_code
        await sign_out(first)
        elapsed[0] = 4.0
        assert 200 == (await second.get("queues")).status_code
        elapsed[0] = 5.1
        assert 303 == (await second.get("queues")).status_code


@run_async
@pytest.mark.single_server("it counts the commands of one server")
async def test_views_of_pages_share_a_look(
    redis_url: str, redis_client: RedisClient, people: CredentialsFile, elapsed: list[float]
) -> None:
    """One for a session in five seconds, and none for requests that have no valid session."""
    async with visit(redis_url, people) as visitor:
        await visitor.get("queues")
        await visitor.get("help", headers={"authorization": "Bearer pyasynq_good"})
        visitor.cookies.set("pyasynq-forged", "a.b")
        await visitor.get("queues")
        redis_client.config_resetstat()
        await sign_in(visitor)
        assert 0 == count_looks(redis_client)
        for seconds, looks in ((0.0, 1), (4.0, 1), (5.1, 2)):
            elapsed[0] = seconds
            for page in ("help", "settings", "help"):
                assert 200 == (await visitor.get(page)).status_code
            assert looks == count_looks(redis_client)
        await sign_out(visitor)
        redis_client.config_resetstat()
        await visitor.get("help")
        assert 0 == count_looks(redis_client)


@run_async
async def test_redis_keeps_nothing_of_a_session_that_signs_in(
    redis_url: str, redis_client: RedisClient, people: CredentialsFile
) -> None:
    """A digest of its id, until its cookie would have lapsed at the latest; lapsed ones are removed."""
    redis_client.zadd(SIGNED_OUT_KEY, {"0" * 32: 1_000_000_000})
    async with visit(redis_url, people) as visitor:
        await sign_in(visitor)
        header = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
        request = Request(
            {**stream_scope("/", ""), "headers": [(b"host", b"localhost"), (b"cookie", header.encode())]}
        )
        session = site(redis_url, people).settings.sessions.find(request)
        assert session is not None
        await sign_out(visitor)
    [(member, until)] = redis_client.zrange(SIGNED_OUT_KEY, 0, -1, withscores=True)
    assert session.id.encode() not in member
    assert session.began + 7 * 86_400 == until
    assert 0 < redis_client.ttl(SIGNED_OUT_KEY) <= 7 * 86_400 + 1


@run_async
async def test_a_session_of_the_far_future_does_not_stay_for_ever(
    redis_url: str, redis_client: RedisClient
) -> None:
    """A clock that was wrong at the login costs Redis a week at most."""
    async with Operator(redis_url, User("dashboard")) as operator:
        await record_sign_out(operator, "id", 9_999_999_999)
    [(_, until)] = redis_client.zrange(SIGNED_OUT_KEY, 0, -1, withscores=True)
    assert until < 4_000_000_000


@run_async
async def test_a_read_only_dashboard_records_too(
    redis_url: str, redis_client: RedisClient, people: CredentialsFile
) -> None:
    """Its mode is about tasks and queues."""
    async with visit(redis_url, people, read_only=True) as visitor:
        await sign_in(visitor)
        assert 303 == (await sign_out(visitor)).status_code
    assert 1 == redis_client.zcard(SIGNED_OUT_KEY)


@pytest.fixture
def viewer(redis_url: str, redis_client: RedisClient, damage_allowed: None) -> Iterator[Callable[..., str]]:
    """Make a Redis user that only reads, with further rules, and return the URL with its login."""

    def make(*rules: str) -> str:
        rights = ("-@all", "+@read", "+@connection", "+evalsha", "+script|load", "+info", "+time")
        command: Any = redis_client.execute_command
        command("ACL", "SETUSER", "viewer", "reset", "on", ">x", "~asynq:*", *rights, *rules)
        parts = urlsplit(redis_url)
        return parts._replace(netloc=f"viewer:x@{parts.netloc.rpartition('@')[2]}").geturl()

    yield make
    redis_client.acl_deluser("viewer")


@run_async
@pytest.mark.single_server("a user of a cluster needs further rights")
async def test_a_redis_user_without_rights_to_write_is_told(
    viewer: Callable[..., str], people: CredentialsFile
) -> None:
    """The session ends in this process, and the page says what a copy of the cookie can still do."""
    address = viewer()
    async with visit(address, people) as first, visit(address, people) as second:
        copy = await sign_in(first)
        answer = await sign_out(first)
        assert (200, "You are signed out here only") == (answer.status_code, heading_of(answer))
        assert COPY_WORKS in answer.text
        assert "has no permissions" in answer.text
        assert not first.cookies
        first.cookies.update(copy)
        assert 303 == (await first.get("queues")).status_code
        second.cookies.update(copy)
        assert 200 == (await second.get("queues")).status_code


@run_async
@pytest.mark.single_server("a user of a cluster needs further rights")
async def test_the_documented_rights_to_record_sign_outs_are_enough(
    viewer: Callable[..., str], redis_client: RedisClient, people: CredentialsFile
) -> None:
    """The page on the dashboard has them, for a Redis user that otherwise only reads."""
    if is_redis_6(redis_client):
        pytest.skip("only on servers with selectors in ACL rules")
    [rights] = re.findall(r"grant `(\(.*?\))`", PAGE)
    async with visit(viewer(rights), people) as visitor:
        await sign_in(visitor)
        assert 303 == (await sign_out(visitor)).status_code
    assert 1 == redis_client.zcard(SIGNED_OUT_KEY)


@pytest.mark.usefixtures("impatient")
@run_async
async def test_without_redis_a_session_sees_the_outage_and_can_end(
    redis_url: str, people: CredentialsFile
) -> None:
    """It is not known whether it was ended, so nothing else is shown, and no one has to sign in again."""
    async with visit(redis_url, people) as visitor:
        copy = await sign_in(visitor)
        settings = await visitor.get("settings")
    async with visit(AWAY, people) as visitor:
        visitor.cookies.update(copy)
        for page in ("queues", "help"):
            answer = await visitor.get(page)
            assert (503, "Redis does not answer") == (answer.status_code, heading_of(answer))
        for path in ("api/v1/me", "api/queues"):
            assert 500 <= (await visitor.get(path)).status_code
        token = settings.text.partition('name="csrf" value="')[2].partition('"')[0]
        answer = await visitor.post("settings", data={"csrf": token, "theme": "dark"})
        assert 503 == answer.status_code
        answer = await visitor.post("logout", data={"csrf": token})
        assert (200, "You are signed out here only") == (answer.status_code, heading_of(answer))
        assert COPY_WORKS in answer.text
        visitor.cookies.update(copy)
        assert 303 == (await visitor.get("help")).status_code


@pytest.mark.usefixtures("impatient")
@run_async
async def test_a_sign_out_is_recorded_in_each_redis(
    redis_url: str, redis_client: RedisClient, people: CredentialsFile
) -> None:
    """Each page asks its own Redis; the page names those that have not recorded it."""
    both = {"eu": redis_url, "us": AWAY}
    async with visit(both, people) as first, visit(both, people) as second:
        copy = await sign_in(first, "eu/")
        answer = await sign_out(first, "eu/")
        assert (200, "You are signed out here only") == (answer.status_code, heading_of(answer))
        assert "us: " in answer.text
        assert "eu: " not in answer.text
        second.cookies.update(copy)
        for page, status in (("us/queues", 503), ("eu/queues", 303), ("us/queues", 303)):
            assert status == (await second.get(page)).status_code


@run_async
async def test_a_damaged_key_locks_no_one_out(
    redis_url: str,
    redis_client: RedisClient,
    people: CredentialsFile,
    damage_allowed: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """People could not see the doctor's page otherwise; the log has it once."""
    redis_client.set(SIGNED_OUT_KEY, "x")
    async with visit(redis_url, people) as visitor:
        await sign_in(visitor)
        for _ in range(2):
            assert 200 == (await visitor.get("doctor")).status_code
        assert COPY_WORKS in (await sign_out(visitor)).text
    assert 1 == sum("whether sessions were ended" in record.message for record in caplog.records)


@run_async
async def test_a_stream_ends_with_its_session(
    redis_url: str, people: CredentialsFile, elapsed: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the session is ended at another process."""
    monkeypatch.setattr(endpoints, "_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(endpoints, "_ALIVE_SECONDS", 0.05)
    own = site(redis_url, people)
    async with visit(redis_url, people) as visitor:
        cookies = await sign_in(visitor)
        header = "; ".join(f"{name}={value}" for name, value in cookies.items()).encode()
        async with stream_of(own, "page=/queues", (b"cookie", header)) as stream:
            await stream.next("cells")
            await sign_out(visitor)
            elapsed[0] = 5.1
            assert {} == await stream.next("bye")
    await own.aclose()
