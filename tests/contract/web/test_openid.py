"""Sign-in at an OpenID provider: the whole flow, who is let in, and every way in which it can fail."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote_plus, urlsplit

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount

from pyasynq.cli.service_server import build_site, choose_parts
from pyasynq.errors import ConfigurationError, InvalidOptionError
from pyasynq.gateway.configurations import parse_service_file
from pyasynq.web import CredentialsFile, OpenIdConnect, dashboard
from pyasynq.web.auth import openid_provider
from pyasynq.web.auth.credentials import password_line
from tests.openid_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    Provider,
    curve_key,
    encode,
    public_key,
    rsa_key,
    serve_provider,
)
from tests.run_async import run_async
from tests.visiting import ABROAD, heading_of, send_form, visiting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import httpx

OWN = "https://ops.example"
PASSWORD = "correct horse battery"
SECRET = "the secret of all processes"


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that does everything right."""
    with serve_provider() as served:
        yield served


def options(provider: Provider, **changes: Any) -> OpenIdConnect:
    """Return the options for a provider whose group `ops` may sign in."""
    given = {"client_id": CLIENT_ID, "url": OWN, "roles": {"ops": "operator"}, **changes}
    return OpenIdConnect(issuer=provider.issuer, **given)


def visit(redis_url: str, provider: Provider, **changes: Any) -> AbstractAsyncContextManager[Any]:
    """Visit a dashboard whose people sign in at the provider."""
    return visiting(redis_url, auth=options(provider, **changes), client=ABROAD, base=f"{OWN}/")


async def begin(visitor: httpx.AsyncClient, following: str = "") -> str:
    """Begin to sign in; return the address at the provider."""
    answer = await visitor.get("login/oidc", params={"next": following})
    assert 303 == answer.status_code, answer.text
    return answer.headers["location"]


async def sign_in(visitor: httpx.AsyncClient, provider: Provider, following: str = "") -> httpx.Response:
    """Sign in; return the answer of the callback."""
    return await visitor.get(provider.approve(await begin(visitor, following)))


async def refusals(redis_url: str) -> list[dict[str, Any]]:
    """Return what the audit has of refused requests."""
    async with visiting(redis_url) as visitor:
        items: list[dict[str, Any]] = (await visitor.get("api/v1/audit/refusals")).json()["items"]
        return items


@run_async
async def test_a_person_signs_in_at_the_provider_and_returns(redis_url: str, provider: Provider) -> None:
    """To the page that was asked for first, with a session of this host and the role of the group."""
    async with visit(redis_url, provider) as visitor:
        first = await visitor.get("queues?sort=queue")
        assert "./login?next=%2Fqueues%3Fsort%3Dqueue" == first.headers["location"]
        page = await visitor.get(first.headers["location"])
        assert 'href="./login/oidc?next=%2Fqueues%3Fsort%3Dqueue"' in page.text
        assert "Sign in with 127.0.0.1" in page.text
        assert "Password" not in page.text
        answer = await sign_in(visitor, provider, "/queues?sort=queue")
        assert (303, "../../queues?sort=queue") == (answer.status_code, answer.headers["location"])
        cookies = answer.headers.get_list("set-cookie")
        assert all(cookie.startswith("__Host-pyasynq-") for cookie in cookies)
        assert all("HttpOnly" in cookie and "Secure" in cookie for cookie in cookies)
        me = (await visitor.get("api/v1/me")).json()
        assert ("mira", "operator", "oidc") == (me["user"], me["role"], me["login"])
        assert 1 == len(visitor.cookies)


@run_async
async def test_the_request_to_the_provider_has_pkce_state_and_nonce(
    redis_url: str, provider: Provider
) -> None:
    """Different ones each time; the redirect URI is the configured one, also if `Host` lies."""
    async with visit(redis_url, provider, scopes=("openid", "groups")) as visitor:
        both = []
        for headers in ({}, {"host": "evil.example", "x-forwarded-host": "evil.example"}):
            answer = await visitor.get("login/oidc", headers=headers)
            both.append(dict(parse_qsl(urlsplit(answer.headers["location"]).query)))
        for asked in both:
            assert {
                "response_type": "code",
                "client_id": CLIENT_ID,
                "redirect_uri": f"{OWN}/login/oidc/callback",
                "scope": "openid groups",
                "code_challenge_method": "S256",
            }.items() <= asked.items()
        for name in ("state", "nonce", "code_challenge"):
            assert both[0][name] != both[1][name]
            assert 43 == len(both[0][name])


@pytest.mark.parametrize(
    ("claims", "chosen", "name"),
    [
        ({"preferred_username": "mira", "email": "m@ops.example", "email_verified": True}, "", "mira"),
        ({"preferred_username": None, "email": "m@ops.example", "email_verified": True}, "", "m@ops.example"),
        ({"preferred_username": None, "email": "m@ops.example", "email_verified": False}, "", "4711"),
        ({"preferred_username": None, "email": "m@ops.example"}, "", "4711"),
        ({"upn": "mira@corp"}, "upn", "mira@corp"),
    ],
)
def test_a_claim_names_the_person(
    redis_url: str, provider: Provider, claims: dict[str, Any], chosen: str, name: str
) -> None:
    """An e-mail address only if the provider has verified it."""
    provider.claims |= claims

    @run_async
    async def ask() -> None:
        async with visit(redis_url, provider, user_claim=chosen) as visitor:
            assert 303 == (await sign_in(visitor, provider)).status_code
            assert name == (await visitor.get("api/v1/me")).json()["user"]

    ask()


@run_async
async def test_groups_give_role_and_queues_as_those_of_a_proxy(redis_url: str, provider: Provider) -> None:
    """The highest role wins, the patterns add up; one text is one group; a default needs no group."""
    roles = {"ops": "operator", "all": "viewer", "example.com": "admin"}
    queues = {"ops": "team-*", "all": ["mail"]}
    for claims, changes, expected in (
        ({"groups": ["all", "ops", "x"]}, {}, ("operator", ["mail", "team-*"])),
        ({"groups": ["all"]}, {}, ("viewer", ["mail"])),
        ({"groups": None, "hd": "example.com"}, {"groups_claim": "hd"}, ("admin", ["*"])),
        ({"groups": None}, {"default_role": "viewer"}, ("viewer", ["*"])),
    ):
        provider.claims |= claims
        async with visit(redis_url, provider, roles=roles, queues=queues, **changes) as visitor:
            assert 303 == (await sign_in(visitor, provider)).status_code
            me = (await visitor.get("api/v1/me")).json()
            assert expected == (me["role"], sorted(me["permissions"]["tasks.view"]))


@run_async
async def test_a_person_without_a_mapped_group_is_refused_with_a_reason(
    redis_url: str, provider: Provider
) -> None:
    """The page and the audit say who it was. An e-mail address that is not verified gives no role."""
    provider.claims |= {"groups": ["guests"], "email": "mira@ops.example"}
    async with visit(redis_url, provider) as visitor:
        answer = await sign_in(visitor, provider)
        assert 403 == answer.status_code
        assert "You are signed in as mira, and none of your groups may use this dashboard." in answer.text
        assert 303 == (await visitor.get("queues")).status_code
    roles = {"mira@ops.example": "admin"}
    async with visit(redis_url, provider, groups_claim="email", roles=roles) as visitor:
        assert 403 == (await sign_in(visitor, provider)).status_code
        provider.claims["email_verified"] = True
        assert 303 == (await sign_in(visitor, provider)).status_code
    [entry, *_] = await refusals(redis_url)
    assert ("mira", "oidc", ABROAD[0]) == (entry["user"], entry["login"], entry["address"])
    assert "GET /login/oidc/callback" == entry["details"]["request"]


def unsigned(provider: Provider) -> None:
    """Send a token without a signature."""
    header = encode(b'{"alg":"none"}')
    provider.token = f"{header}.{encode(json.dumps({'iss': provider.issuer}).encode())}."


def symmetric(provider: Provider) -> None:
    """Sign with the public key as a secret (algorithm confusion)."""
    public = json.dumps(public_key("first", rsa_key(1))).encode()
    header = encode(b'{"alg":"HS256","kid":"first"}')
    signed = f"{header}.{encode(b'{}')}"
    provider.token = f"{signed}.{encode(hmac.digest(public, signed.encode(), hashlib.sha256))}"


def forged(provider: Provider) -> None:
    """Sign with another key of the same id."""
    provider.answers["/keys"] = JSONResponse({"keys": [public_key("first", rsa_key(2))]})


FAILURES: dict[str, tuple[Any, str]] = {
    "issuer": ({"iss": "https://evil.example"}, "names another issuer"),
    "audience": ({"aud": "other"}, "is for another application"),
    "party": ({"aud": [CLIENT_ID, "other"], "azp": "other"}, "is for another application"),
    "party of one": ({"azp": "other"}, "is for another application"),
    "no party": ({"aud": [CLIENT_ID, "other"]}, "is for another application"),
    "nonce": ({"nonce": "another"}, "belongs to another sign-in"),
    "no nonce": ({"nonce": None}, "is incomplete"),
    "expired": ({"exp": int(time.time()) - 90}, "has expired"),
    "no end": ({"exp": None}, "is incomplete"),
    "future": ({"iat": int(time.time()) + 10 * 365 * 86_400}, "is from the future"),
    "not yet": ({"nbf": int(time.time()) + 10 * 365 * 86_400}, "is from the future"),
    "no subject": ({"sub": None}, "is incomplete"),
    "name": ({"preferred_username": "mira\u202e"}, "cannot be shown"),
    "unsigned": (unsigned, "no signature of a kind that is accepted"),
    "symmetric": (symmetric, "no signature of a kind that is accepted"),
    "forged": (forged, "signature of the provider&#39;s answer is wrong"),
    "nonsense": (lambda provider: setattr(provider, "token", "nonsense"), "no signature of a kind"),
    "empty": (lambda provider: setattr(provider, "token", ""), "no signature of a kind"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_wrong_token_is_refused(
    redis_url: str, provider: Provider, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """With a sentence on the login page and in the audit; neither has anything of the token or the code."""
    wrong, sentence = FAILURES[name]
    if callable(wrong):
        wrong(provider)
    else:
        provider.claims |= wrong

    @run_async
    async def ask() -> None:
        async with visit(redis_url, provider) as visitor:
            callback = provider.approve(await begin(visitor))
            answer = await visitor.get(callback)
            assert answer.status_code in {401, 403}
            assert sentence in answer.text
            assert "Sign in with" in answer.text
            assert 0 == len(visitor.cookies)
            [entry] = await refusals(redis_url)
            assert sentence.replace("&#39;", "'") in entry["error"]
            code = dict(parse_qsl(urlsplit(callback).query))["code"]
            shown = answer.text + json.dumps(entry) + caplog.text
            for secret in (code, "eyJ", provider.sent["code_verifier"]):
                assert secret not in shown

    ask()


@run_async
async def test_clocks_may_differ_by_a_minute(redis_url: str, provider: Provider) -> None:
    """In both directions."""
    now = int(time.time())
    for claims in ({"exp": now - 30}, {"iat": now + 30, "exp": now + 300}):
        provider.claims |= claims
        async with visit(redis_url, provider) as visitor:
            assert 303 == (await sign_in(visitor, provider)).status_code


@run_async
async def test_keys_of_other_kinds_sign_too(redis_url: str, provider: Provider) -> None:
    """Keys of unknown kinds, for encryption, or with a secret are left out; a single one needs no id."""
    provider.keys = {"curve": curve_key(1)}
    provider.signs_with = "curve"
    others = [
        {"kty": "unknown", "kid": "a"},
        {"kty": "oct", "k": encode(b"x" * 32), "kid": "curve"},
        {**public_key("curve", curve_key(2)), "use": "enc"},
        "nonsense",
    ]
    keys = [*others, public_key("curve", curve_key(1))]
    provider.answers["/keys"] = JSONResponse({"keys": keys})
    async with visit(redis_url, provider) as visitor:
        for kid in ("curve", None):
            provider.header = {"kid": kid}
            assert 303 == (await sign_in(visitor, provider)).status_code


@run_async
async def test_a_rotated_key_is_fetched_once_more(redis_url: str, provider: Provider) -> None:
    """At once, but not more than five times a minute for keys that do not exist."""
    async with visit(redis_url, provider) as visitor:
        assert 303 == (await sign_in(visitor, provider)).status_code
        provider.keys = {"second": rsa_key(2)}
        provider.signs_with = "second"
        assert 303 == (await sign_in(visitor, provider)).status_code
        assert 303 == (await sign_in(visitor, provider)).status_code
        assert 2 == provider.requests.count("/keys")
        assert 1 == provider.requests.count("/.well-known/openid-configuration")
        provider.header = {"kid": "unknown"}
        for _ in range(8):
            answer = await sign_in(visitor, provider)
            assert 401 == answer.status_code
            assert "signed by a key that it does not publish" in answer.text
        assert 6 == provider.requests.count("/keys")


@run_async
async def test_a_refusal_of_the_provider_is_told(redis_url: str, provider: Provider) -> None:
    """In our words: a text of another form than an error code is not repeated."""
    async with visit(redis_url, provider) as visitor:
        for error, sentence in (
            ("access_denied", "The provider refused the sign-in, or you did."),
            ("server_error", "The provider reported an error: server_error."),
            ("<b>Call 555</b>", "The provider reported an error."),
        ):
            asked = dict(parse_qsl(urlsplit(await begin(visitor)).query))
            answer = await visitor.get(
                "login/oidc/callback",
                params={"error": error, "error_description": "Call 556", "state": asked["state"]},
            )
            assert 401 == answer.status_code
            assert sentence in answer.text
            assert "Call 55" not in answer.text


@run_async
async def test_a_sign_in_is_taken_once_and_by_its_browser(redis_url: str, provider: Provider) -> None:
    """A replay, another browser, another state, or no cookie get nothing; the code is not even asked for."""
    async with visit(redis_url, provider) as visitor:
        callback = provider.approve(await begin(visitor))
        copy = dict(visitor.cookies)
        assert 303 == (await visitor.get(callback)).status_code
        visitor.cookies.clear()
        visitor.cookies.update(copy)
        again = await visitor.get(callback)
        assert (401, True) == (again.status_code, "Sign in again." in again.text)
        visitor.cookies.clear()
        assert 401 == (await visitor.get(provider.approve(await begin(visitor)) + "x")).status_code
        callback = provider.approve(await begin(visitor))
        [(name, value)] = visitor.cookies.items()
        for forged_cookie in ("", "A" + value[1:], value.partition(".")[0], "x" * 5_000):
            visitor.cookies.clear()
            visitor.cookies.set(name, forged_cookie)
            assert 401 == (await visitor.get(callback)).status_code
        assert 1 == provider.requests.count("/token")


@run_async
async def test_a_sign_in_ends_after_ten_minutes(
    redis_url: str, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says so."""
    site = dashboard(redis_url, auth=options(provider))
    assert site.settings.openid is not None
    async with visiting(site, client=ABROAD, base=f"{OWN}/") as visitor:
        callback = provider.approve(await begin(visitor))
        monkeypatch.setattr(site.settings.openid.pending, "_clock", lambda: time.time() + 601)
        answer = await visitor.get(callback)
        assert 401 == answer.status_code
        assert "longer than ten minutes" in answer.text


@run_async
async def test_signing_in_leads_to_no_other_site(redis_url: str, provider: Provider) -> None:
    """An address that a browser would follow elsewhere, or one that is too long, becomes the overview."""
    async with visit(redis_url, provider) as visitor:
        for address in (
            "//evil.example",
            "https://evil.example",
            "/\\evil.example",
            "/x\r\nSet-Cookie: a=b",
            "/" + "x" * 2_000,
        ):
            answer = await sign_in(visitor, provider, address)
            assert (303, "../../") == (answer.status_code, answer.headers["location"]), address


@run_async
async def test_a_mounted_dashboard_and_several_processes_share_sign_ins(
    redis_url: str, provider: Provider
) -> None:
    """One process begins, another one finishes, and both know the session; under a prefix, too."""
    auth = options(provider, url=f"{OWN}/a/b/")
    both = [dashboard(redis_url, auth=auth, secret=SECRET) for _ in range(2)]
    first, second = (Starlette(routes=[Mount("/a/b", site)]) for site in both)
    async with (
        visiting(both[0], host=first, client=ABROAD, base=f"{OWN}/a/b/") as visitor,
        visiting(both[1], host=second, client=ABROAD, base=f"{OWN}/a/b/") as other,
    ):
        callback = provider.approve(await begin(visitor, "/queues"))
        other.cookies.update(visitor.cookies)
        assert callback.startswith(f"{OWN}/a/b/login/oidc/callback?")
        answer = await other.get(callback)
        assert "../../queues" == answer.headers["location"]
        assert 200 == (await other.get("queues")).status_code
        visitor.cookies.update(other.cookies)
        assert 200 == (await visitor.get("queues")).status_code


@run_async
async def test_each_of_several_redis_has_a_callback(redis_url: str, provider: Provider) -> None:
    """A session holds for all of them."""
    auth = options(provider)
    both = {"eu": redis_url, "us": redis_url}
    async with visiting(both, auth=auth, client=ABROAD, base=f"{OWN}/") as visitor:
        begun = await visitor.get("us/login/oidc")
        callback = provider.approve(begun.headers["location"])
        assert callback.startswith(f"{OWN}/us/login/oidc/callback?")
        assert 303 == (await visitor.get(callback)).status_code
        assert 200 == (await visitor.get("eu/queues")).status_code


@run_async
async def test_people_of_the_task_service_sign_in_too(
    redis_url: str, provider: Provider, tmp_path: Path
) -> None:
    """By the table of its file, on an address that other machines reach, next to passwords."""
    people = tmp_path / "people"
    people.write_text(password_line("leo", "viewer", "*", PASSWORD) + "\n")
    table = {"issuer": provider.issuer, "client_id": CLIENT_ID, "url": OWN, "roles": {"ops": "operator"}}
    settings = {"redis": redis_url, "listen": "0.0.0.0:8080", "people": str(people), "oidc": table}
    file = parse_service_file({"service": settings})
    served = build_site(file, choose_parts(file.service, "dashboard"))
    assert served.dashboard is not None
    async with visiting(served.dashboard, host=served, client=ABROAD, base=f"{OWN}/") as visitor:
        page = (await visitor.get("login")).text
        assert ("Sign in with 127.0.0.1" in page, "Password" in page) == (True, True)
        assert 303 == (await sign_in(visitor, provider)).status_code
        assert "oidc" == (await visitor.get("api/v1/me")).json()["login"]


@run_async
async def test_groups_come_from_userinfo_if_the_token_has_none(redis_url: str, provider: Provider) -> None:
    """With the access token of this sign-in. An empty list in the ID token is an answer."""
    provider.metadata["userinfo_endpoint"] = f"{provider.issuer}/userinfo"
    for in_token, in_userinfo, status, asked in (
        (None, ["ops"], 303, 1),
        (None, ["other"], 403, 1),
        ([], ["ops"], 403, 0),
        (["ops"], [], 303, 0),
    ):
        provider.claims["groups"], provider.userinfo["groups"] = in_token, in_userinfo
        provider.requests.clear()
        async with visit(redis_url, provider) as visitor:
            answer = await sign_in(visitor, provider)
        assert (status, asked) == (answer.status_code, provider.requests.count("/userinfo"))
    assert "Bearer opaque" == provider.userinfo_authorization


@run_async
async def test_userinfo_is_not_asked_without_need(redis_url: str, provider: Provider) -> None:
    """If no group has a role, and if the provider has no endpoint that is protected."""
    provider.claims["groups"] = None
    for endpoint, changes, status in (
        (f"{provider.issuer}/userinfo", {"roles": {}, "default_role": "viewer"}, 303),
        ("http://evil.example/userinfo", {}, 403),
        (None, {}, 403),
    ):
        provider.metadata["userinfo_endpoint"] = endpoint
        async with visit(redis_url, provider, **changes) as visitor:
            assert status == (await sign_in(visitor, provider)).status_code
    assert "/userinfo" not in provider.requests


@pytest.mark.parametrize(
    ("userinfo", "sentence"),
    [
        ({"sub": "4712", "groups": ["ops"]}, "is about another person"),
        ({"groups": ["ops"]}, "is about another person"),
        ({"sub": ["4711"], "groups": ["ops"]}, "is about another person"),
        ([], "cannot be understood"),
    ],
)
@run_async
async def test_userinfo_of_another_person_signs_no_one_in(
    redis_url: str, provider: Provider, userinfo: Any, sentence: str
) -> None:
    """Its `sub` is that of the ID token (OpenID Connect Core, 5.3.2)."""
    provider.metadata["userinfo_endpoint"] = f"{provider.issuer}/userinfo"
    provider.claims["groups"] = None
    provider.userinfo = userinfo
    async with visit(redis_url, provider) as visitor:
        answer = await sign_in(visitor, provider)
        assert 401 <= answer.status_code
        assert sentence in answer.text
        assert 303 == (await visitor.get("queues")).status_code


@run_async
async def test_an_unverified_address_of_userinfo_gives_no_role(redis_url: str, provider: Provider) -> None:
    """Also if the ID token calls another address verified."""
    provider.metadata["userinfo_endpoint"] = f"{provider.issuer}/userinfo"
    provider.claims |= {"email_verified": True}
    changes = {"groups_claim": "email", "roles": {"mira@a.example": "admin"}}
    for is_verified, status in ((False, 403), (True, 303)):
        provider.userinfo = {"sub": "4711", "email": "mira@a.example", "email_verified": is_verified}
        async with visit(redis_url, provider, **changes) as visitor:
            assert status == (await sign_in(visitor, provider)).status_code


@run_async
async def test_an_answer_of_another_provider_is_refused(redis_url: str, provider: Provider) -> None:
    """If it names itself (RFC 9207), and if it should and does not."""
    provider.metadata["authorization_response_iss_parameter_supported"] = True
    async with visit(redis_url, provider) as visitor:
        for suffix, status in (
            ("&iss=https%3A%2F%2Fevil.example", 401),
            ("", 401),
            (f"&iss={quote_plus(provider.issuer)}", 303),
        ):
            answer = await visitor.get(provider.approve(await begin(visitor)) + suffix)
            assert status == answer.status_code


@run_async
async def test_the_client_shows_its_secret_as_the_provider_wants(
    redis_url: str, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By HTTP Basic, in the body, or not at all; it comes from a text, a file or the environment."""
    basic = base64.b64encode(f"{CLIENT_ID}:{quote_plus(CLIENT_SECRET)}".encode()).decode()
    async with visit(redis_url, provider, client_secret=CLIENT_SECRET) as visitor:
        assert 303 == (await sign_in(visitor, provider)).status_code
    assert (f"Basic {basic}", None) == (provider.authorization, provider.sent.get("client_secret"))
    file = tmp_path / "secret"
    file.write_text(f"{CLIENT_SECRET}\n")
    provider.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    async with visit(redis_url, provider, client_secret=f"file:{file}") as visitor:
        assert 303 == (await sign_in(visitor, provider)).status_code
    assert ("", CLIENT_SECRET) == (provider.authorization, provider.sent["client_secret"])
    async with visit(redis_url, provider) as visitor:
        assert 303 == (await sign_in(visitor, provider)).status_code
    assert ("", None) == (provider.authorization, provider.sent.get("client_secret"))
    assert CLIENT_ID == provider.sent["client_id"]
    monkeypatch.setenv("PYASYNQ_OIDC_SECRET", CLIENT_SECRET)
    async with visit(redis_url, provider) as visitor:
        assert 303 == (await sign_in(visitor, provider)).status_code
    assert CLIENT_SECRET == provider.sent["client_secret"]
    assert CLIENT_SECRET not in repr(options(provider, client_secret=CLIENT_SECRET))
    with pytest.raises(ConfigurationError):
        dashboard(redis_url, auth=options(provider, client_secret=f"file:{tmp_path / 'none'}"))


DISCOVERY = "/.well-known/openid-configuration"
BROKEN: dict[str, tuple[str, Response, int]] = {
    "error": (DISCOVERY, Response("", 500), 503),
    "missing": (DISCOVERY, Response("", 404), 502),
    "no JSON": (DISCOVERY, Response("<html>"), 502),
    "no object": (DISCOVERY, JSONResponse([]), 502),
    "deep": (DISCOVERY, Response("[" * 400_000), 502),
    "large": (DISCOVERY, Response("{" + " " * 600_000 + "}"), 503),
    "redirect": (DISCOVERY, RedirectResponse("http://127.0.0.1:1/"), 502),
    "token error": ("/token", JSONResponse({"error": "invalid_client"}, 401), 401),
    "token down": ("/token", Response("", 503), 503),
    "token nonsense": ("/token", Response("{"), 502),
    "token absent": ("/token", JSONResponse({}), 401),
    "keys down": ("/keys", Response("", 503), 503),
    "keys wrong": ("/keys", JSONResponse({"keys": "none"}), 401),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_answer_of_the_provider_is_told_on_the_login_page(
    redis_url: str, provider: Provider, name: str
) -> None:
    """Wherever it happens; the next sign-in works again."""
    path, wrong, status = BROKEN[name]
    provider.answers[path] = wrong

    @run_async
    async def ask() -> None:
        async with visit(redis_url, provider) as visitor:
            answer = (
                await visitor.get("login/oidc") if path == DISCOVERY else await sign_in(visitor, provider)
            )
            assert status == answer.status_code
            assert "The provider" in answer.text
            assert "Sign in to pyasynq" == heading_of(answer)
            assert 1 == len(await refusals(redis_url))
            provider.answers.clear()
            assert 303 == (await sign_in(visitor, provider)).status_code

    ask()


@run_async
async def test_a_discovery_document_of_another_issuer_is_refused(redis_url: str, provider: Provider) -> None:
    """Also if it differs in its last slash alone, as the specification wants it."""
    async with visit(redis_url, provider) as visitor:
        for issuer in ("https://evil.example", f"{provider.issuer}/", None):
            provider.metadata["issuer"] = issuer
            answer = await visitor.get("login/oidc")
            assert (502, True) == (answer.status_code, "names another issuer" in answer.text)


@pytest.mark.parametrize("field", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize("address", ["http://evil.example/x", "javascript:1", "", None, "https://a b"])
def test_an_endpoint_without_tls_is_refused(
    redis_url: str, provider: Provider, field: str, address: str | None
) -> None:
    """Only a provider on this machine does without."""
    provider.metadata[field] = address

    @run_async
    async def ask() -> None:
        async with visit(redis_url, provider) as visitor:
            answer = await visitor.get("login/oidc")
            assert (502, True) == (answer.status_code, "lacks an endpoint" in answer.text)

    ask()


@run_async
async def test_a_provider_that_is_away_or_slow_does_not_hold_up_the_login(
    redis_url: str, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten attempts in a minute it is not even asked."""
    away = OpenIdConnect(issuer="http://127.0.0.1:1", client_id=CLIENT_ID, url=OWN, roles={"ops": "operator"})
    async with visiting(redis_url, auth=away, client=ABROAD, base=f"{OWN}/") as visitor:
        answer = await visitor.get("login/oidc")
        assert (503, True) == (answer.status_code, "The provider does not answer." in answer.text)
    monkeypatch.setattr(openid_provider, "_PATIENCE", aiohttp.ClientTimeout(total=0.05))
    provider.is_stalled = True
    async with visit(redis_url, provider) as visitor:
        for _ in range(12):
            answer = await visitor.get("login/oidc")
            assert (503, True) == (answer.status_code, "The provider does not answer." in answer.text)
    assert 10 == len(provider.requests)


@run_async
async def test_callbacks_are_limited_as_sign_ins_are(redis_url: str, provider: Provider) -> None:
    """Thirty in a minute from one address; the right one must wait, too."""
    async with visit(redis_url, provider) as visitor:
        for _ in range(30):
            assert 401 == (await visitor.get("login/oidc/callback?code=x&state=y")).status_code
        late = await sign_in(visitor, provider)
        assert (429, True) == (late.status_code, "Too many tries." in late.text)
        assert 0 < int(late.headers["retry-after"]) <= 60


@run_async
async def test_signing_out_ends_both_sessions(redis_url: str, provider: Provider) -> None:
    """The page goes to the provider by itself, and its link does without; the way back is the login page."""
    async with visit(redis_url, provider) as visitor:
        await sign_in(visitor, provider)
        copy = dict(visitor.cookies)
        answer = await send_form(visitor, "logout", {}, page="settings")
        assert (200, "You are signed out") == (answer.status_code, heading_of(answer))
        refresh = answer.headers["refresh"]
        assert refresh.startswith(f"0; url={provider.issuer}/logout?client_id={CLIENT_ID}&")
        back = dict(parse_qsl(urlsplit(refresh).query))["post_logout_redirect_uri"]
        assert "../../login" == (await visitor.get(back)).headers["location"]
        visitor.cookies.update(copy)
        assert 303 == (await visitor.get("queues")).status_code
    for metadata in ({"end_session_endpoint": None}, {"end_session_endpoint": "http://evil.example"}):
        provider.metadata = metadata
        async with visit(redis_url, provider) as visitor:
            await sign_in(visitor, provider)
            answer = await send_form(visitor, "logout", {}, page="settings")
            assert (303, "./login") == (answer.status_code, answer.headers["location"])


@run_async
async def test_a_changed_configuration_ends_sessions(redis_url: str, provider: Provider) -> None:
    """A group without a role any more, or another client; a changed role holds at once."""
    async with visit(redis_url, provider, roles={"ops": "operator"}) as visitor:
        site = dashboard(redis_url, auth=options(provider), secret=SECRET)
    async with visiting(site, client=ABROAD, base=f"{OWN}/") as visitor:
        await sign_in(visitor, provider)
        cookies = dict(visitor.cookies)
    for changes, status in (
        ({"roles": {"ops": "viewer"}}, 200),
        ({"roles": {"other": "viewer"}}, 303),
        ({"client_id": "another"}, 303),
    ):
        site = dashboard(redis_url, auth=options(provider, **changes), secret=SECRET)
        async with visiting(site, client=ABROAD, base=f"{OWN}/") as visitor:
            visitor.cookies.update(cookies)
            assert status == (await visitor.get("queues")).status_code
            if status == 200:
                assert "viewer" == (await visitor.get("api/v1/me")).json()["role"]


@run_async
async def test_too_many_groups_for_a_cookie_are_refused(redis_url: str, provider: Provider) -> None:
    """Instead of a cookie that the browser drops; groups without a role are not stored."""
    groups = [f"group-{number:030}" for number in range(200)]
    provider.claims["groups"] = [*groups, "ops"]
    async with visit(redis_url, provider) as visitor:
        assert 303 == (await sign_in(visitor, provider)).status_code
    async with visit(redis_url, provider, roles=dict.fromkeys(groups, "viewer")) as visitor:
        answer = await sign_in(visitor, provider)
        assert (403, True) == (answer.status_code, "too many groups" in answer.text)


@run_async
async def test_passwords_and_the_provider_are_on_one_page(
    redis_url: str, provider: Provider, tmp_path: Path
) -> None:
    """Either works; a failure at the provider does not mark the password as wrong."""
    people = tmp_path / "people"
    people.write_text(password_line("leo", "viewer", "*", PASSWORD) + "\n")
    auth = [CredentialsFile(people), options(provider, name="Corp & Co")]
    async with visiting(redis_url, auth=auth, client=ABROAD, base=f"{OWN}/") as visitor:
        page = await visitor.get("login")
        assert "Password" in page.text
        assert "Sign in with Corp &amp; Co" in page.text
        failed = await visitor.get("login/oidc/callback?code=x&state=y")
        assert "aria-invalid" not in failed.text
        answer = await send_form(visitor, "login", {"name": "leo", "password": PASSWORD})
        assert 303 == answer.status_code
        assert "password" == (await visitor.get("api/v1/me")).json()["login"]
        assert 303 == (await send_form(visitor, "logout", {}, page="settings")).status_code
        await sign_in(visitor, provider)
        assert "oidc" == (await visitor.get("api/v1/me")).json()["login"]


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"issuer": "http://login.example"}, "issuer"),
        ({"issuer": "https://login.example/?x"}, "issuer"),
        ({"issuer": "login.example"}, "issuer"),
        ({"url": "http://ops.example"}, "url"),
        ({"url": "https://user:word@ops.example"}, "url"),
        ({"client_id": ""}, "client_id"),
        ({"roles": {}}, "roles"),
        ({"roles": {"ops": "boss"}}, "role"),
        ({"scopes": "openid"}, "scopes"),
        ({"scopes": ["profile"]}, "scopes"),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, Any], option: str) -> None:
    """When they are given, not when somebody signs in."""
    given = {"issuer": "https://login.example", "client_id": "x", "url": OWN, "roles": {"ops": "viewer"}}
    with pytest.raises(InvalidOptionError) as caught:
        OpenIdConnect(**{**given, **changes})
    assert option == caught.value.option


def test_without_openid_nothing_of_it_is_imported() -> None:
    """Neither a package of the extra, nor the client."""
    program = (
        "import sys; from pyasynq.web import dashboard; dashboard('redis://127.0.0.1:1');"
        "print(sorted({'aiohttp', 'joserfc', 'pyasynq.web.auth.openid_provider'}"
        " & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[]\n" == ended.stdout
