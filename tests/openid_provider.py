"""A small OpenID provider on loopback, which signs its own tokens, and misbehaves if a test wants it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
import time
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import uvicorn
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

CLIENT_ID = "pyasynq"
CLIENT_SECRET = "a secret: of the client"


def encode(data: bytes) -> str:
    """Encode bytes in Base64, as in tokens."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def encode_number(number: int) -> str:
    """Encode a number in Base64, as in keys."""
    return encode(number.to_bytes((number.bit_length() + 7) // 8, "big"))


@cache
def rsa_key(number: int) -> rsa.RSAPrivateKey:
    """Return one of the keys of this run."""
    del number
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


@cache
def curve_key(number: int) -> ec.EllipticCurvePrivateKey:
    """Return one of the keys of this run on the curve P-256."""
    del number
    return ec.generate_private_key(ec.SECP256R1())


class Provider:
    """The provider. Tests change its fields between two requests.

    Args:
        issuer: its address.
    """

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.keys: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey] = {"first": rsa_key(1)}
        self.signs_with = "first"
        self.claims: dict[str, Any] = {"preferred_username": "mira", "groups": ["ops"]}
        """Claims of the token besides the required ones; None removes one."""
        self.metadata: dict[str, Any] = {}
        """Fields of the discovery document that differ."""
        self.header: dict[str, Any] = {}
        """Fields of the header of a token that differ; None removes one."""
        self.token: str | None = None
        """ID token that is sent instead of the right one."""
        self.answers: dict[str, Response] = {}
        """Answers that are sent instead of the right ones, by path."""
        self.requests: list[str] = []
        self.authorization = ""
        """`Authorization` header of the last request for a token."""
        self.sent: dict[str, str] = {}
        """Fields of the last request for a token."""
        self.userinfo: dict[str, Any] = {"sub": "4711", "groups": ["ops"]}
        """Claims that the userinfo endpoint sends; tests name the endpoint in the discovery document."""
        self.userinfo_authorization = ""
        """`Authorization` header of the last request for userinfo."""
        self.is_stalled = False
        """Whether no request is answered."""
        self._codes: dict[str, dict[str, str]] = {}
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._answer(self._discovery)),
                Route("/authorize", self._answer(self._authorize)),
                Route("/token", self._answer(self._exchange), methods=["POST"]),
                Route("/userinfo", self._answer(self._tell_userinfo)),
                Route("/keys", self._answer(self._list_keys)),
                Route("/logout", self._answer(self._end_session)),
            ]
        )

    def approve(self, url: str) -> str:
        """Return the address to which a browser goes after its user has signed in at an address of ours."""
        asked = dict(parse_qsl(urlsplit(url).query))
        code = f"code-{len(self._codes)}-of-{asked['state'][:6]}"
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def sign(self, claims: dict[str, Any]) -> str:
        """Return a token of these claims."""
        key = self.keys[self.signs_with]
        is_curve = isinstance(key, ec.EllipticCurvePrivateKey)
        header = {"alg": "ES256" if is_curve else "RS256", "kid": self.signs_with, **self.header}
        sent = {name: value for name, value in header.items() if value is not None}
        signed = f"{encode(json.dumps(sent).encode())}.{encode(json.dumps(claims).encode())}"
        if isinstance(key, rsa.RSAPrivateKey):
            signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        else:
            both = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
            signature = b"".join(one.to_bytes(32, "big") for one in both)
        return f"{signed}.{encode(signature)}"

    def _answer(self, function: Any) -> Any:
        async def endpoint(request: Request) -> Response:
            self.requests.append(request.url.path)
            if self.is_stalled:
                await asyncio.sleep(60)  # the client gives up before
            given = self.answers.get(request.url.path)
            answer: Response = given if given is not None else await function(request)
            return answer

        return endpoint

    async def _discovery(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "end_session_endpoint": f"{self.issuer}/logout",
                **self.metadata,
            }
        )

    async def _authorize(self, request: Request) -> Response:
        return RedirectResponse(self.approve(str(request.url)), 303)

    async def _exchange(self, request: Request) -> Response:
        self.sent = dict(parse_qsl((await request.body()).decode()))
        self.authorization = request.headers.get("authorization", "")
        asked = self._codes.pop(self.sent.get("code", ""), None)
        challenge = encode(hashlib.sha256(self.sent.get("code_verifier", "").encode()).digest())
        is_right = (
            asked is not None
            and asked["code_challenge_method"] == "S256"
            and asked["code_challenge"] == challenge
            and asked["redirect_uri"] == self.sent["redirect_uri"]
        )
        if asked is None or not is_right:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": "4711",
            "aud": CLIENT_ID,
            "exp": now + 300,
            "iat": now,
            "nonce": asked["nonce"],
            **self.claims,
        }
        kept = {name: value for name, value in claims.items() if value is not None}
        token = self.sign(kept) if self.token is None else self.token
        return JSONResponse({"access_token": "opaque", "token_type": "Bearer", "id_token": token})

    async def _tell_userinfo(self, request: Request) -> Response:
        self.userinfo_authorization = request.headers.get("authorization", "")
        return JSONResponse(self.userinfo)

    async def _list_keys(self, _: Request) -> Response:
        return JSONResponse({"keys": [public_key(kid, key) for kid, key in self.keys.items()]})

    async def _end_session(self, request: Request) -> Response:
        back = request.query_params["post_logout_redirect_uri"]
        return HTMLResponse(f'<h1>Signed out of the provider</h1><a href="{back}">Back</a>')


def public_key(kid: str, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """Return the public part of a key, as a JWKS document has it."""
    if isinstance(key, rsa.RSAPrivateKey):
        public = key.public_key().public_numbers()
        return {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": kid,
            "n": encode_number(public.n),
            "e": encode_number(public.e),
        }
    point = key.public_key().public_numbers()
    return {
        "kty": "EC",
        "crv": "P-256",
        "kid": kid,
        "x": encode(point.x.to_bytes(32, "big")),
        "y": encode(point.y.to_bytes(32, "big")),
    }


@contextmanager
def serve_provider(host: str = "127.0.0.1") -> Iterator[Provider]:
    """Serve a provider on loopback in a thread; for browsers, another host is another site."""
    port = free_port()
    provider = Provider(f"http://{host}:{port}")
    config = uvicorn.Config(
        provider.app, port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=asyncio.run, args=(server.serve(),))
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    try:
        yield provider
    finally:
        server.should_exit = True
        thread.join()
