"""Client of an OpenID provider: discovery document, keys, exchange of the code, userinfo, end of session."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlencode

import aiohttp

from pyasynq._sign_in.addresses import is_protected_url
from pyasynq.web.auth.id_token import UnknownKeyError, read_key_set, verify_id_token
from pyasynq.web.auth.rate_limit import RateLimit
from pyasynq.web.auth.secret import read_secret
from pyasynq.web.auth.sign_in_error import SignInError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from joserfc.jwk import KeySet

    from pyasynq._sign_in.openid_options import OpenIdConnect

_log = logging.getLogger("pyasynq.web")

_PATIENCE: Final = aiohttp.ClientTimeout(total=10, sock_connect=5)
_SECRET_VARIABLE: Final = "PYASYNQ_OIDC_SECRET"  # noqa: S105 - the name of the variable
_LARGEST_ANSWER: Final = 500_000
_CHUNK: Final = 65_536
_FRESH_SECONDS: Final = 3_600
"""Seconds for which the discovery document and the keys are cached."""
_MINUTE: Final = 60.0
_DISCOVERIES: Final = 10
"""Maximum number of attempts a minute to read the discovery document, while the provider is unreachable."""
_KEY_REFRESHES: Final = 5
"""Maximum number of times a minute that an unknown key id makes the client read the keys again."""
_DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
_ERROR_CODE: Final = re.compile("[a-z_]{1,40}")
_ACCESS_TOKEN: Final = re.compile("[!-~]{1,50000}")
_LONGEST_NAME: Final = 200
_AWAY: Final = "The provider does not answer. Try again in a minute."
_UNCLEAR: Final = "The provider's answer cannot be understood."


@dataclass(frozen=True, slots=True)
class SignedInPerson:
    """A person as the provider names them, with all of their groups."""

    name: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Provider:
    """Checked endpoints of the provider; `fresh_until` is a monotonic time."""

    authorization: str
    token: str
    keys: str
    end_session: str
    """Endpoint that ends sessions; empty if there is none."""
    userinfo: str
    """Userinfo endpoint, which returns further claims; empty if there is none."""
    names_itself: bool
    """Whether the provider sends `iss` to the callback to identify itself (RFC 9207)."""
    takes_basic: bool
    """Whether the client secret is sent to the token endpoint by HTTP Basic; otherwise in the body."""
    fresh_until: float


class OpenIdProvider:
    """Client of one provider, which keeps its discovery document and keys for an hour.

    Args:
        options: settings of the provider, and of this client.
        clock: function that returns Unix time.
    """

    def __init__(self, options: OpenIdConnect, clock: Callable[[], float] = time.time) -> None:
        self._options = options
        self._secret = read_secret(options.client_secret, _SECRET_VARIABLE)
        self._clock = clock
        self._known: _Provider | None = None
        self._keys: tuple[KeySet, float] | None = None
        self._discoveries = RateLimit(_DISCOVERIES, _MINUTE)
        self._key_refreshes = RateLimit(_KEY_REFRESHES, _MINUTE)

    async def authorization_url(self, callback: str, *, state: str, nonce: str, verifier: str) -> str:
        """Return the authorization URL at the provider, where a sign-in begins.

        Raises:
            SignInError: the provider cannot be reached, or its discovery document is wrong.
        """
        provider = await self._discover()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        return _add_query(
            provider.authorization,
            {
                "response_type": "code",
                "client_id": self._options.client_id,
                "redirect_uri": callback,
                "scope": " ".join(self._options.scopes),
                "state": state,
                "nonce": nonce,
                "code_challenge": challenge.decode().rstrip("="),
                "code_challenge_method": "S256",
            },
        )

    async def fetch_person(
        self, query: Mapping[str, str], callback: str, *, nonce: str, verifier: str
    ) -> SignedInPerson:
        """Exchange the authorization code in the callback's query for tokens, and return the person.

        Raises:
            SignInError: the provider has refused, or its response is not valid.
        """
        provider = await self._discover()
        if query.get("iss", self._options.issuer if not provider.names_itself else "") != (
            self._options.issuer
        ):
            raise SignInError("The answer came from another provider.")
        if "error" in query:
            raise SignInError(_explain_refusal(query["error"]))
        if not query.get("code"):
            raise SignInError(_UNCLEAR)
        answer = await self._exchange_code(provider, query["code"], callback, verifier)
        claims = await self._verify(provider, answer.get("id_token"), nonce)
        if self._options.roles and self._options.groups_claim not in claims and provider.userinfo:
            info = await self._fetch_userinfo(provider, answer.get("access_token"), claims["sub"])
        else:
            info = claims
        return SignedInPerson(self._read_name(claims), self._read_groups(info))

    async def end_session_url(self, callback: str) -> str:
        """Return the URL that ends the session at the provider; empty if it has none or is unreachable."""
        try:
            provider = await self._discover()
        except SignInError:
            return ""
        fields = {"client_id": self._options.client_id, "post_logout_redirect_uri": callback}
        return _add_query(provider.end_session, fields) if provider.end_session else ""

    async def _discover(self) -> _Provider:
        known = self._known
        if known is not None and time.monotonic() < known.fresh_until:
            return known
        if not self._discoveries.allow(""):
            raise SignInError(_AWAY, status=503)
        issuer = self._options.issuer
        found = await self._fetch("GET", issuer.rstrip("/") + _DISCOVERY_PATH)
        if found.get("issuer") != issuer:
            raise SignInError("The provider's discovery document names another issuer.", status=502)
        endpoints = [found.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
        if not all(map(is_protected_url, endpoints)):
            raise SignInError("The provider's discovery document lacks an endpoint.", status=502)
        end = found.get("end_session_endpoint")
        userinfo = found.get("userinfo_endpoint")
        methods = found.get("token_endpoint_auth_methods_supported")
        authorization, token, keys = map(str, endpoints)
        self._known = _Provider(
            authorization,
            token,
            keys,
            end_session=str(end) if is_protected_url(end) else "",
            userinfo=str(userinfo) if is_protected_url(userinfo) else "",
            names_itself=found.get("authorization_response_iss_parameter_supported") is True,
            takes_basic=not isinstance(methods, list) or "client_secret_basic" in methods,
            fresh_until=time.monotonic() + _FRESH_SECONDS,
        )
        return self._known

    async def _exchange_code(
        self, provider: _Provider, code: str, callback: str, verifier: str
    ) -> dict[str, Any]:
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback,
            "code_verifier": verifier,
        }
        headers = {}
        if self._secret and provider.takes_basic:
            # RFC 6749, 2.3.1: each part is form-encoded before both are joined.
            pair = f"{quote_plus(self._options.client_id)}:{quote_plus(self._secret)}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            fields["client_id"] = self._options.client_id
            if self._secret:
                fields["client_secret"] = self._secret
        return await self._fetch("POST", provider.token, data=fields, headers=headers)

    async def _fetch_userinfo(self, provider: _Provider, token: object, subject: str) -> dict[str, Any]:
        """Return the claims of the userinfo endpoint about this person (OpenID Connect Core, 5.3)."""
        if not isinstance(token, str) or not _ACCESS_TOKEN.fullmatch(token):
            raise SignInError(_UNCLEAR)
        info = await self._fetch("GET", provider.userinfo, headers={"Authorization": f"Bearer {token}"})
        if info.get("sub") != subject:
            raise SignInError("The provider's answer is about another person.")
        return info

    async def _verify(self, provider: _Provider, token: object, nonce: str) -> dict[str, Any]:
        expected = {"issuer": self._options.issuer, "client_id": self._options.client_id, "nonce": nonce}
        now = int(self._clock())
        try:
            return verify_id_token(token, await self._read_keys(provider), **expected, now=now)
        except UnknownKeyError:
            unknown = SignInError("The provider's answer is signed by a key that it does not publish.")
        if not self._key_refreshes.allow(""):
            raise unknown
        self._keys = None
        try:
            return verify_id_token(token, await self._read_keys(provider), **expected, now=now)
        except UnknownKeyError:
            raise unknown from None

    async def _read_keys(self, provider: _Provider) -> KeySet:
        if self._keys is not None and time.monotonic() < self._keys[1]:
            return self._keys[0]
        keys = read_key_set(await self._fetch("GET", provider.keys))
        self._keys = (keys, time.monotonic() + _FRESH_SECONDS)
        return keys

    async def _fetch(
        self,
        method: str,
        url: str,
        *,
        data: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the JSON object in the provider's response; redirects are not followed."""
        sent = {"Accept": "application/json", **(headers or {})}
        try:
            async with (
                aiohttp.ClientSession(timeout=_PATIENCE, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.request(method, url, data=data, headers=sent, allow_redirects=False) as reply,
            ):
                status, body = reply.status, await _read_body(reply)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            # Log only the error's class: its text may repeat secrets that were sent.
            _log.warning("the OpenID provider does not answer at %s: %s", url, type(error).__name__)
            raise SignInError(_AWAY, status=503) from None
        answer = _parse_object(body)
        if status != 200 or answer is None:
            _log.warning("the OpenID provider answered with status %d at %s", status, url)
            raise _explain_status(status, answer)
        return answer

    def _read_name(self, claims: dict[str, Any]) -> str:
        chosen = self._options.user_claim
        for claim in (chosen,) if chosen else ("preferred_username", "email", "sub"):
            name = _read_claim(claims, claim)
            if isinstance(name, str) and name.strip():
                if len(name) > _LONGEST_NAME or not name.isprintable():
                    raise SignInError("The provider gives you a name that cannot be shown.", status=403)
                return name
        text = "The provider does not tell your name, or has not verified your e-mail address."
        raise SignInError(text, status=403)

    def _read_groups(self, claims: dict[str, Any]) -> tuple[str, ...]:
        found = _read_claim(claims, self._options.groups_claim)
        listed = found if isinstance(found, list) else [found]
        return tuple(group for group in listed if isinstance(group, str))


def _read_claim(claims: dict[str, Any], name: str) -> object:
    """Return a claim; an e-mail address that the provider has not verified counts as missing."""
    is_unverified = name == "email" and claims.get("email_verified") not in {True, "true"}
    return None if is_unverified else claims.get(name)


async def _read_body(reply: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in reply.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > _LARGEST_ANSWER:
            raise ValueError("the answer is too large")
    return bytes(body)


def _parse_object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _explain_status(status: int, answer: dict[str, Any] | None) -> SignInError:
    if status >= 500:
        return SignInError(_AWAY, status=503)
    if answer is None or status == 200:
        return SignInError(_UNCLEAR, status=502)
    return SignInError(_explain_refusal(answer.get("error")))


def _explain_refusal(code: object) -> str:
    """Return the sentence for an OAuth error code. A code is repeated only if it is a lowercase word."""
    if code == "access_denied":
        return "The provider refused the sign-in, or you did."
    is_shown = isinstance(code, str) and _ERROR_CODE.fullmatch(code)
    return f"The provider reported an error{f': {code}' if is_shown else ''}."


def _add_query(url: str, fields: dict[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(fields)}"
