"""Verification of ID tokens: signature, issuer, audience, times and nonce (OpenID Connect Core, 3.1.3.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from joserfc import errors, jwt
from joserfc.jwk import ECKey, JWKRegistry, KeySet, OKPKey, RSAKey

from pyasynq.web.auth.sign_in_error import SignInError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALGORITHMS: Final = [
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
]
"""Signature algorithms that are accepted: asymmetric ones only, so neither `none` nor HMAC."""
_SKEW_SECONDS: Final = 60
"""Maximum accepted difference, in seconds, between the clocks of the provider and this machine."""
_LONGEST_TOKEN: Final = 100_000
_INCOMPLETE: Final = "The provider's answer is incomplete."
_REASONS: Final = {
    "iss": "The provider's answer names another issuer.",
    "aud": "The provider's answer is for another application.",
    "azp": "The provider's answer is for another application.",
    "nonce": "The provider's answer belongs to another sign-in. Sign in again.",
    "iat": "The provider's answer is from the future. Check the clocks of both machines.",
    "nbf": "The provider's answer is from the future. Check the clocks of both machines.",
    "exp": "The provider's answer has expired. Check the clocks of both machines, and sign in again.",
}


class UnknownKeyError(Exception):
    """Error: a token is signed by a key that is not in the key set."""


def read_key_set(document: Mapping[str, Any]) -> KeySet:
    """Return the public keys for signatures in a JWKS document; keys of unknown kinds are left out."""
    listed = document.get("keys")
    keys: list[RSAKey | ECKey | OKPKey] = []
    for data in listed if isinstance(listed, list) else []:
        if not isinstance(data, dict) or data.get("use", "sig") != "sig":
            continue
        try:
            key = JWKRegistry.import_key(data)
        except (errors.JoseError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, (RSAKey, ECKey, OKPKey)):
            keys.append(key)
    return KeySet(list(keys))


def verify_id_token(
    token: object, keys: KeySet, *, issuer: str, client_id: str, nonce: str, now: int
) -> dict[str, Any]:
    """Verify an ID token, and return its claims.

    Args:
        token: the token, as the provider has sent it.
        keys: public keys of the provider.
        issuer: issuer that the token must name.
        client_id: audience that the token must name.
        nonce: nonce of this sign-in.
        now: current Unix time.

    Raises:
        UnknownKeyError: if the token is signed by a key that is not among `keys`.
        SignInError: for any other token that is not valid.
    """
    if not isinstance(token, str) or len(token) > _LONGEST_TOKEN:
        raise SignInError("The provider's answer has no ID token.")
    try:
        claims = jwt.decode(token, keys, _ALGORITHMS).claims
    except errors.InvalidKeyIdError:
        raise UnknownKeyError from None
    except errors.BadSignatureError:
        raise SignInError("The signature of the provider's answer is wrong.") from None
    except (errors.JoseError, ValueError, TypeError, KeyError, RecursionError):
        text = "The provider's answer has no signature of a kind that is accepted."
        raise SignInError(text) from None
    _check_claims(claims, issuer, client_id, nonce, now)
    return claims


def _check_claims(claims: dict[str, Any], issuer: str, client_id: str, nonce: str, now: int) -> None:
    rules = jwt.JWTClaimsRegistry(
        now,
        _SKEW_SECONDS,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client_id},
        nonce={"essential": True, "value": nonce},
        exp={"essential": True},
        iat={"essential": True},
        sub={"essential": True},
    )
    try:
        rules.validate(claims)
    except errors.ExpiredTokenError:
        raise SignInError(_REASONS["exp"]) from None
    except errors.MissingClaimError:
        raise SignInError(_INCOMPLETE) from None
    except errors.ClaimError as error:
        raise SignInError(_REASONS.get(error.claim, _INCOMPLETE)) from None
    audience = claims["aud"]
    is_shared = isinstance(audience, list) and len(audience) > 1
    if (is_shared or "azp" in claims) and claims.get("azp") != client_id:
        raise SignInError(_REASONS["azp"])
    if not all(isinstance(claims[name], str) for name in ("iss", "nonce", "sub")):
        raise SignInError(_INCOMPLETE)
