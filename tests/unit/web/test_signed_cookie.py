"""The cookies of the dashboard: signature, content, end, attributes, and those of earlier releases."""

from __future__ import annotations

import base64
import json

import pytest
from starlette.requests import Request
from starlette.responses import Response

from pyasynq.web.auth.pending_login import PendingLogins
from pyasynq.web.auth.secret import SigningSecret
from pyasynq.web.auth.sessions import IDLE_SECONDS, LONGEST_SECONDS, LoginSession, Sessions
from pyasynq.web.auth.sign_in_error import SignInError
from pyasynq.web.auth.signed_cookie import CookieContent, SignedCookie

SECRET = SigningSecret("a secret of the tests")
NOW = 1_800_000_100
SESSION_COOKIE = (
    "pyasynq-dl1Gxr=WyJJRCIsICJtaXJhIiwgInByaW50IiwgMTgwMDAwMDAwMCwgMTgwMDAwMDA1MCwgWyJvcHMiXV0"
    ".4nFgRvwPokZTXqPw9vGCerhgCGjciBLT3oBQ4lDm5lg"
)
PENDING_COOKIE = (
    "pyasynq-dl1Gxr-login=WyJTVEFURSIsICIvcXVldWVzP3NvcnQ9cXVldWUiLCAxODAwMDAwMTAwXQ"
    ".I1OxU9UlQv9fSh-NEwh457t4y_m4eAlyrPvikNqQF2Y"
)


class Note(CookieContent, frozen=True):
    """Content of a cookie of these tests."""

    text: str
    second: int = 0

    @property
    def expires_at(self) -> int:
        """The second."""
        return self.second


def make_cookie(secret: SigningSecret = SECRET, purpose: str = "note") -> SignedCookie[Note]:
    """Return a cookie for notes."""
    return SignedCookie(secret, Note, purpose=purpose, longest=500)


def make_request(cookie: str = "", scheme: str = "http") -> Request:
    """Return a request of a browser with a cookie."""
    headers = [(b"host", b"ops.example"), (b"cookie", cookie.encode())]
    scope = {"type": "http", "method": "GET", "scheme": scheme, "path": "/", "query_string": b""}
    return Request({**scope, "headers": headers, "server": ("ops.example", 80)})


def written(cookie: SignedCookie[Note], note: Note) -> str:
    """Return name and value of a cookie, as a browser sends it back."""
    response = Response()
    cookie.write(make_request(), response, note)
    return response.headers["set-cookie"].partition(";")[0]


def signed(purpose: str, data: str) -> str:
    """Return a cookie with any content, signed for a purpose."""
    body = base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")
    name = SESSION_COOKIE.partition("=")[0]
    return f"{name}={body}.{SECRET.sign(purpose, body.encode())}"


@pytest.mark.parametrize("text", ["mira", "ä→😀", "\udcff", ""])
def test_the_content_comes_back(text: str) -> None:
    """Also a text that is not Unicode, as in an address with wrong bytes."""
    cookie = make_cookie()
    assert Note(text, 7) == cookie.read(make_request(written(cookie, Note(text, 7))))


def test_a_cookie_of_another_purpose_is_refused() -> None:
    """Also if it is sent under the name of the other one, and its fields would fit."""
    cookie = written(make_cookie(purpose="one"), Note("mira"))
    assert make_cookie(purpose="one").read(make_request(cookie)) is not None
    assert make_cookie(purpose="another").read(make_request(cookie)) is None


def test_a_sign_in_that_waits_is_never_a_session() -> None:
    """A browser that sends it under the session's name is not signed in, and the reverse."""
    pending = "=".join((SESSION_COOKIE.partition("=")[0], PENDING_COOKIE.partition("=")[2]))
    session = "=".join((PENDING_COOKIE.partition("=")[0], SESSION_COOKIE.partition("=")[2]))
    assert Sessions(SECRET, lambda: NOW).find(make_request(pending)) is None
    with pytest.raises(SignInError):
        PendingLogins(SECRET, "oidc-x", lambda: NOW).take(make_request(session), "ID")


def test_any_of_several_secrets_verifies_and_another_does_not() -> None:
    """The first one signs, so an old secret may stay for a while."""
    old, both, other = "an old secret to keep", "a new secret to use", "another secret here"
    cookie = written(make_cookie(SigningSecret(old)), Note("mira")).partition("=")[2]
    for text, expected in ((old, True), (f"{both},{old}", True), (other, False)):
        secret = SigningSecret(text)
        name = written(make_cookie(secret), Note("")).partition("=")[0]
        found = make_cookie(secret).read(make_request(f"{name}={cookie}"))
        assert expected == (found is not None)


@pytest.mark.parametrize(
    "data",
    ["", "{}", "[]", "[1]", '["a", "b"]', '["a", 1, 2, 3', "null", "[" * 300, '{"text": "a"}', '["a", 1e99]'],
)
def test_signed_nonsense_is_refused(data: str) -> None:
    """Content of another form, such as that of another release, counts as missing."""
    assert make_cookie().read(make_request(signed("note", data))) is None


def test_a_changed_or_long_cookie_is_refused() -> None:
    """One changed character of content or signature is enough."""
    cookie = make_cookie()
    name, _, value = written(cookie, Note("mira")).partition("=")
    for forged in ("", ".", "a.b", "A" + value[1:], value[:-2], value.partition(".")[0], value + "x" * 500):
        assert cookie.read(make_request(f"{name}={forged}")) is None, forged
    assert not cookie.fits(Note("x" * 400))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_cookies_are_for_the_server_alone(scheme: str) -> None:
    """No script reads them; with HTTPS they are bound to the host, also when they are removed."""
    cookie = SignedCookie(SECRET, Note, purpose="note", longest=500, suffix="-note", max_age=60)
    request, response, gone = make_request(scheme=scheme), Response(), Response()
    cookie.write(request, response, Note("mira"))
    cookie.remove(request, gone)
    prefix, secure = ("__Host-", ["Secure"]) if scheme == "https" else ("", [])
    for answer, age in ((response, "60"), (gone, "0")):
        first, *attributes = answer.headers["set-cookie"].split("; ")
        assert first.startswith(f"{prefix}pyasynq-dl1Gxr-note=")
        found = [one for one in attributes if not one.startswith("expires")]
        assert ["HttpOnly", f"Max-Age={age}", "Path=/", "SameSite=lax", *secure] == found


def test_a_content_is_over_after_its_last_second() -> None:
    """The browser's own clock and memory decide nothing."""
    assert [False, True] == [Note("", 7).is_over(now) for now in (7.0, 7.1)]


def test_sessions_of_earlier_releases_go_on() -> None:
    """Names, signature and content of the cookies have not changed; those without groups are known too."""
    sessions = Sessions(SECRET, lambda: NOW)
    expected = LoginSession("ID", "mira", "print", 1_800_000_000, 1_800_000_050, ("ops",))
    assert expected == sessions.find(make_request(SESSION_COOKIE))
    fields = json.dumps(["ID", "mira", "print", 1_800_000_000, 1_800_000_050])
    found = sessions.find(make_request(signed("web session", fields)))
    assert found is not None
    assert () == found.groups


def test_sign_ins_of_earlier_releases_go_on() -> None:
    """A person who is at the provider during an upgrade comes back to the new release."""
    login = PendingLogins(SECRET, "oidc-x", lambda: NOW).take(make_request(PENDING_COOKIE), "STATE")
    assert "/queues?sort=queue" == login.following
    assert "opQi6ifF8YAUX_Us-EUVIwLkaaijvbx3QIgu1tPKeew" == login.nonce


@pytest.mark.parametrize(
    ("began", "seen"), [(NOW - 60, NOW - IDLE_SECONDS), (NOW - LONGEST_SECONDS, NOW - 60)]
)
def test_a_session_ends_when_it_is_idle_and_after_a_week(began: int, seen: int) -> None:
    """Whatever is first."""
    session = LoginSession("ID", "mira", "print", began, seen)
    assert [False, True] == [session.is_over(now) for now in (NOW, NOW + 1)]


@pytest.mark.parametrize("path", ["/" + "x" * 2_000, "/" + "ä" * 400])
def test_a_path_that_is_too_long_for_the_cookie_becomes_the_overview(path: str) -> None:
    """The sign-in goes on; a browser would drop a longer cookie, and refuse the answer of the provider."""
    assert "" == PendingLogins(SECRET, "oidc-x").begin(path).following
