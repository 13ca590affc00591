"""Sign-in to the dashboard: who is let in, how a session begins and ends, and what another site cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.requests import Request

from pyasynq.operations import User
from pyasynq.web import CredentialsFile, Everyone, TrustedProxy, dashboard
from pyasynq.web.auth import credentials
from pyasynq.web.auth.credentials import password_line
from tests.people_file import PASSWORD, write_people
from tests.run_async import run_async
from tests.visiting import ABROAD, form_token, heading_of, send_form, stream_scope, visiting

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from pyasynq.web.auth.sessions import LoginSession


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A credentials file with a person and a token."""
    return write_people(tmp_path, "team-*")


async def sign_in(visitor: httpx.AsyncClient, password: str = PASSWORD, **fields: str) -> httpx.Response:
    """Send the login form as mira."""
    return await send_form(visitor, "login", {"name": "mira", "password": password, **fields})


@run_async
async def test_without_auth_only_this_machine_gets_in(redis_url: str) -> None:
    """From elsewhere the page names three ways to sign in; also for a foreign name that points here."""
    async with visiting(redis_url) as visitor:
        assert 200 == (await visitor.get("queues")).status_code
        for headers in ({"host": "evil.example"}, {"x-forwarded-for": "203.0.113.9"}):
            assert 403 == (await visitor.get("queues", headers=headers)).status_code
    async with visiting(redis_url, client=ABROAD) as visitor:
        response = await visitor.get("queues")
        assert (403, "This dashboard is open to its own machine alone") == (
            response.status_code,
            heading_of(response),
        )
        assert "CredentialsFile" in response.text


@run_async
async def test_a_password_begins_a_session_and_leads_back(redis_url: str, people: Path) -> None:
    """To the page that was asked for first; the role of the file holds."""
    async with visiting(redis_url, auth=CredentialsFile(people), client=ABROAD) as visitor:
        first = await visitor.get("queues?sort=queue")
        assert (303, "./login?next=%2Fqueues%3Fsort%3Dqueue") == (
            first.status_code,
            first.headers["location"],
        )
        answer = await sign_in(visitor, next="/queues?sort=queue")
        assert (303, "./queues?sort=queue") == (answer.status_code, answer.headers["location"])
        page = await visitor.get("settings")
        assert "operator" in page.text
        assert "team-*" in page.text


@run_async
async def test_a_wrong_password_is_refused_and_slowed_down(redis_url: str, people: Path) -> None:
    """After five tries in a minute, also with the right password; whether the name is right is not told."""
    async with visiting(redis_url, auth=CredentialsFile(people), client=ABROAD) as visitor:
        wrong = await sign_in(visitor, "guess")
        unknown = await send_form(visitor, "login", {"name": "nobody", "password": "guess"})
        assert (401, 401) == (wrong.status_code, unknown.status_code)
        assert "Name or password is wrong. 4 more tries this minute." in wrong.text
        assert "Name or password is wrong. 4 more tries this minute." in unknown.text
        for _ in range(4):
            await sign_in(visitor, "guess")
        late = await sign_in(visitor)
        assert 429 == late.status_code
        assert "Too many tries." in late.text


@run_async
async def test_failed_sign_ins_are_in_the_audit(redis_url: str, people: Path) -> None:
    """With the person's name if there is one, and never with what was typed for an unknown one."""
    async with visiting(redis_url, auth=CredentialsFile(people), client=ABROAD) as visitor:
        await sign_in(visitor, "guess")
        await send_form(visitor, "login", {"name": "hunter2", "password": "guess"})
    async with visiting(redis_url) as visitor:
        answer = await visitor.get("api/v1/audit/refusals")
    found = [
        (entry["user"], entry["login"], entry["address"], entry["details"]["request"])
        for entry in answer.json()["items"]
    ]
    assert {(name, "password", ABROAD[0], "POST /login") for name in ("mira", "")} == set(found)
    assert "hunter2" not in answer.text
    assert "guess" not in answer.text


@pytest.mark.parametrize("name", ["mira", "nobody"])
@run_async
async def test_an_unknown_name_takes_the_work_of_a_wrong_password(
    redis_url: str, people: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One hash with the same cost, so that the time of the answer does not tell which names exist."""
    auth = CredentialsFile(people)
    costs: list[int] = []
    hash_password = credentials.hash_password

    def count(password: str, salt: bytes | None = None, cost: int = 0) -> str:
        costs.append(cost)
        return hash_password(password, salt, cost)

    monkeypatch.setattr(credentials, "hash_password", count)
    async with visiting(redis_url, auth=auth, client=ABROAD) as visitor:
        answer = await send_form(visitor, "login", {"name": name, "password": "guess"})
    assert (401, [15]) == (answer.status_code, costs)


@run_async
async def test_a_sign_in_adopts_no_session_that_was_there_before(redis_url: str, people: Path) -> None:
    """Neither the person's own former session, another person's valid one, nor a made-up one (fixation)."""
    with people.open("a") as file:
        file.write(password_line("eve", "viewer", "*", "hers") + "\n")
    site = dashboard(redis_url, auth=CredentialsFile(people))

    def session_of(visitor: httpx.AsyncClient) -> LoginSession:
        header = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
        headers = [(b"host", b"localhost"), (b"cookie", header.encode())]
        found = site.settings.sessions.find(Request({**stream_scope("/", ""), "headers": headers}))
        assert found is not None
        return found

    async with visiting(site, client=ABROAD) as visitor:
        answer = await send_form(visitor, "login", {"name": "eve", "password": "hers"})
        assert 303 == answer.status_code
        [(name, planted)] = visitor.cookies.items()
        seen = {session_of(visitor).id}
        for before in (planted, planted, "A" + planted[1:], None):
            if before is not None:
                visitor.cookies.clear()
                visitor.cookies.set(name, before, domain="localhost.local", path="/")
            assert 303 == (await sign_in(visitor)).status_code
            assert 1 == len(visitor.cookies)
            session = session_of(visitor)
            assert "mira" == session.name
            assert session.id not in seen
            seen.add(session.id)
            assert "operator" in (await visitor.get("settings")).text


@run_async
async def test_signing_out_ends_the_session_everywhere(redis_url: str, people: Path) -> None:
    """A copy of the cookie is worth nothing afterwards."""
    async with visiting(redis_url, auth=CredentialsFile(people), client=ABROAD) as visitor:
        await sign_in(visitor)
        copy = dict(visitor.cookies)
        await send_form(visitor, "logout", {}, page="settings")
        visitor.cookies.update(copy)
        assert 303 == (await visitor.get("queues")).status_code


@run_async
async def test_another_password_ends_sessions_of_the_old_one(redis_url: str, people: Path) -> None:
    """And so does a person's removal; both hold with the next request."""
    async with visiting(redis_url, auth=CredentialsFile(people), client=ABROAD) as visitor:
        await sign_in(visitor)
        assert 200 == (await visitor.get("queues")).status_code
        another = password_line("mira", "operator", "*", "another password")
        people.write_text(another + "\n")  # noqa: ASYNC240 - a small file of a test
        assert 303 == (await visitor.get("queues")).status_code


@run_async
async def test_a_forged_cookie_is_not_signed_in(redis_url: str, people: Path) -> None:
    """A changed body, a missing signature, nonsense."""
    async with visiting(redis_url, auth=CredentialsFile(people), client=ABROAD) as visitor:
        await sign_in(visitor)
        [(name, value)] = visitor.cookies.items()
        for forged in ("A" + value[1:], value.partition(".")[0], ".", "x" * 5_000, "a.b"):
            visitor.cookies.set(name, forged)
            assert 303 == (await visitor.get("queues")).status_code
            visitor.cookies.clear()


@run_async
async def test_the_cookie_of_https_belongs_to_the_host_alone(redis_url: str, people: Path) -> None:
    """`__Host-`, Secure, HttpOnly, SameSite=Lax, for the whole host."""
    auth = CredentialsFile(people)
    async with visiting(redis_url, auth=auth, client=ABROAD, base="https://ops.example/") as visitor:
        cookie = (await sign_in(visitor)).headers["set-cookie"]
        assert cookie.startswith("__Host-pyasynq-")
        for part in ("HttpOnly", "Secure", "SameSite=lax", "Path=/"):
            assert part in cookie


@run_async
async def test_a_form_after_the_end_of_a_session_leads_back_to_its_page(redis_url: str, people: Path) -> None:
    """A form without a page of its own leads to the overview."""
    async with visiting(redis_url, auth=CredentialsFile(people), client=ABROAD) as visitor:
        for path, following in (
            ("queues/emails/tasks/a/delete_task", "%2Fqueues%2Femails%2Ftasks%2Fa%2Fdelete_task"),
            ("enqueue?type=x", "%2Fenqueue%3Ftype%3Dx"),
            ("views/x/delete", "%2F"),
        ):
            answer = await visitor.post(path, data={"reason": "test"})
            assert 303 == answer.status_code
            assert answer.headers["location"].endswith(f"login?next={following}")


@run_async
async def test_signing_in_leads_to_no_other_site(redis_url: str, people: Path) -> None:
    """An address that a browser would follow elsewhere becomes the overview."""
    async with visiting(redis_url, auth=CredentialsFile(people), client=ABROAD) as visitor:
        for address in (
            "//evil.example",
            "https://evil.example",
            "/\\evil.example",
            "/x\r\nSet-Cookie: a=b",
            "javascript:1",
        ):
            answer = await sign_in(visitor, next=address)
            assert "./" == answer.headers["location"], address
            if answer.status_code == 303:
                visitor.cookies.clear()


@run_async
async def test_a_bearer_token_is_asked_with_each_request(redis_url: str, people: Path) -> None:
    """An expired one and a wrong one are refused, without a login page."""
    async with visiting(redis_url, auth=CredentialsFile(people), client=ABROAD) as visitor:
        for token, status in (("pyasynq_good", 200), ("pyasynq_expired", 401), ("guess", 401)):
            response = await visitor.get("queues", headers={"authorization": f"Bearer {token}"})
            assert status == response.status_code
        assert not visitor.cookies


@run_async
async def test_a_proxy_is_believed_only_from_its_network(redis_url: str) -> None:
    """The role comes from the groups, the highest wins; a stranger's header is ignored."""
    auth = TrustedProxy(
        ["10.0.0.0/8"], roles={"ops": "operator", "all": "viewer"}, queues={"all": ["team-*"]}
    )
    headers = {"x-forwarded-user": "mira", "x-forwarded-groups": "all, ops"}
    async with visiting(redis_url, auth=auth, client=("10.1.2.3", 1)) as visitor:
        assert "operator" in (await visitor.get("settings", headers=headers)).text
        assert 401 == (await visitor.get("settings", headers={"x-forwarded-user": "eve"})).status_code
    async with visiting(redis_url, auth=auth, client=ABROAD) as visitor:
        assert 401 == (await visitor.get("settings", headers=headers)).status_code


@run_async
async def test_a_function_of_the_host_decides(redis_url: str) -> None:
    """It gets the request, and returns a user or None."""

    async def who(request: Request) -> User | None:
        return User.with_role("host", "viewer") if request.headers.get("x-key") == "k" else None

    async with visiting(redis_url, auth=who, client=ABROAD) as visitor:
        assert 401 == (await visitor.get("queues")).status_code
        assert 200 == (await visitor.get("queues", headers={"x-key": "k"})).status_code


@run_async
async def test_forms_of_other_sites_are_refused(redis_url: str) -> None:
    """By where the browser says they come from, and by the token that only our pages hold."""
    async with visiting(redis_url) as visitor:
        token = form_token((await visitor.get("settings")).text)
        fields = {"csrf": token, "theme": "dark"}
        for headers in (
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"origin": "http://evil.example"},
        ):
            assert 403 == (await visitor.post("settings", data=fields, headers=headers)).status_code
        assert 403 == (await visitor.post("settings", data={"theme": "dark"})).status_code
        assert 403 == (await visitor.post("settings", data={"csrf": "x.y", "theme": "dark"})).status_code
        assert (
            303
            == (
                await visitor.post("settings", data=fields, headers={"origin": "http://localhost"})
            ).status_code
        )
        found = [
            (entry["details"]["request"], entry["error"])
            for entry in (await visitor.get("api/v1/audit/refusals")).json()["items"]
        ]
    assert (
        {
            ("POST /settings", "It was sent by another site."),
            ("POST /settings", "The page was too old. Go back, load it again, and repeat what you did."),
        }
        >= set(found)
        != set()
    )


@run_async
async def test_a_form_of_more_than_a_megabyte_is_refused(redis_url: str) -> None:
    """Before it is parsed."""
    async with visiting(redis_url) as visitor:
        assert 413 == (await visitor.post("settings", data={"csrf": "x" * 1_100_000})).status_code


@run_async
async def test_everyone_may_have_a_role(redis_url: str) -> None:
    """For networks that are guarded by other means; a viewer sees no button that changes something."""
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        assert "viewer" in (await visitor.get("settings")).text
