"""API keys of programs: their text, their record in Redis, and their scopes. Pure.

The text is `pq_ID_SECRET_CHECKSUM`. Redis has the SHA-256 of the secret only: with 256 random bits a slow
hash adds nothing. The checksum distinguishes a mistyped key from a revoked one, without Redis.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import zlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import check_name
from pyasynq.errors import InvalidOptionError, nearest

from .patterns import EVERYTHING
from .permissions import ROLES, Permission, ProgramPermission, User
from .request_rate import RequestRate, parse_request_rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta

    from .permissions import AnyPermission

SCOPES: Final[Mapping[str, frozenset[AnyPermission]]] = MappingProxyType(
    {
        "tasks:write": frozenset(
            {
                Permission.TASKS_VIEW,
                Permission.TASKS_ENQUEUE,
                Permission.TASKS_RUN,
                Permission.TASKS_CANCEL,
                Permission.TASKS_ARCHIVE,
                Permission.TASKS_DELETE,
            }
        ),
        "tasks:read": frozenset(
            {Permission.TASKS_VIEW, Permission.PAYLOAD_VIEW, ProgramPermission.RESULTS_READ}
        ),
        "work": frozenset({ProgramPermission.WORK_LEASE}),
        "types:write": frozenset({Permission.TASKS_VIEW, ProgramPermission.TYPES_EDIT}),
        "metrics:read": frozenset({ProgramPermission.METRICS_READ}),
        "admin": ROLES["admin"] | frozenset(ProgramPermission),
    }
)
"""Permissions of a key, by scope; the scope `admin` has the permissions of all other scopes."""
ADMIN_SCOPE: Final = "admin"

_TEXT: Final = re.compile(r"(pq_([0-9a-f]{12})_([0-9a-f]{64}))_([0-9a-f]{8})", re.ASCII)
_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
_LONGEST_NAME: Final = 100
_MOST_PATTERNS: Final = 50
_LONGEST_PATTERN: Final = 200


@dataclass(frozen=True, slots=True)
class KeySecret:
    """One secret of a key."""

    digest: str = field(repr=False)
    """SHA-256 of the secret, in hexadecimal digits."""
    made_at: datetime
    expires_at: datetime | None = None
    """Time at which the secret expires; None if it expires together with its key."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """API key: name, scopes, queues and secrets of a program."""

    id: str
    name: str
    scopes: tuple[str, ...]
    patterns: tuple[str, ...]
    """Patterns of the queues, and so of the task types, that the program may use."""
    made_at: datetime
    made_by: str
    """Name of the user who made the key."""
    expires_at: datetime | None
    """Time at which the key ends; None for never."""
    secrets: tuple[KeySecret, ...]
    """Secrets, the newest first; during a rotation there are two."""
    rate: RequestRate | None = None
    """Rate limit of requests with the key, over all instances; None for no limit."""

    def accepts(self, secret: str, now: datetime) -> bool:
        """Return whether this is a valid secret of the key; compare in constant time (timing attack)."""
        digest = _digest(secret)
        is_known = False
        for one in self.secrets:
            is_known |= hmac.compare_digest(one.digest.encode("utf-8", "replace"), digest.encode()) and (
                one.expires_at is None or now < one.expires_at
            )
        return is_known and not self.is_expired(now)

    def is_expired(self, now: datetime) -> bool:
        """Return whether the key's time is over."""
        return self.expires_at is not None and now >= self.expires_at

    @property
    def all_scopes(self) -> frozenset[str]:
        """Scopes of the key, including those that the scope `admin` implies."""
        return frozenset(SCOPES if ADMIN_SCOPE in self.scopes else self.scopes)

    def to_user(self, address: str = "") -> User:
        """Return a user with the permissions of this key, for a program; the audit names it `key:ID`."""
        permissions = {one for scope in self.scopes for one in SCOPES.get(scope, ())}
        return User(f"key:{self.id}", dict.fromkeys(permissions, self.patterns), "", "key", address)


@dataclass(frozen=True, slots=True)
class IssuedApiKey:
    """A key with its new secret."""

    key: ApiKey
    text: str = field(repr=False)
    """Text of the key, as programs send it. Redis keeps only a hash of its secret, so show the text now."""


def make_api_key(
    name: str,
    scopes: Sequence[str],
    patterns: Sequence[str],
    *,
    by: str,
    expires_in: timedelta | None,
    now: datetime,
    rate: str | None = None,
) -> IssuedApiKey:
    """Build a new key with a new secret.

    Raises:
        InvalidOptionError: for an invalid name, scope, pattern or rate.
    """
    if len(check_name("name", name)) > _LONGEST_NAME:
        raise InvalidOptionError("name", name, f"must have at most {_LONGEST_NAME} characters")
    now = now.replace(microsecond=0)
    key = ApiKey(
        id=secrets.token_hex(_ID_BYTES),
        name=name,
        scopes=_check_scopes(scopes),
        patterns=_check_patterns(patterns),
        made_at=now,
        made_by=by,
        expires_at=None if expires_in is None else _add("expires_in", now, expires_in),
        secrets=(),
        rate=None if rate is None else parse_request_rate("rate", rate),
    )
    return issue_secret(key, overlap=None, now=now)


def issue_secret(key: ApiKey, *, overlap: timedelta | None, now: datetime) -> IssuedApiKey:
    """Return a key with a new secret (rotation).

    The former secret stays valid for `overlap`; if `overlap` is None, it ends at once.
    """
    secret = secrets.token_hex(_SECRET_BYTES)
    now = now.replace(microsecond=0)
    former = []
    if overlap is not None:
        end = _add("overlap", now, overlap)
        former = [
            KeySecret(one.digest, one.made_at, min(end, one.expires_at or end)) for one in key.secrets[:1]
        ]
    issued = replace(key, secrets=(KeySecret(_digest(secret), now), *former))
    head = f"pq_{key.id}_{secret}"
    return IssuedApiKey(issued, f"{head}_{_checksum(head)}")


def split_key_text(text: str) -> tuple[str, str] | None:
    """Return id and secret of a key's text; None for text with another form or a wrong checksum."""
    found = _TEXT.fullmatch(text)
    if found is None or _checksum(found[1]) != found[4]:
        return None
    return found[2], found[3]


def encode_api_key(key: ApiKey) -> bytes:
    """Return a key as JSON, without its id, which is the name of its hash field in Redis."""
    facts: dict[str, Any] = {
        "name": key.name,
        "scopes": key.scopes,
        "queues": key.patterns,
        "at": _second(key.made_at),
        "by": key.made_by,
        "until": _second(key.expires_at),
        "secrets": [
            {"sha256": one.digest, "at": _second(one.made_at), "until": _second(one.expires_at)}
            for one in key.secrets
        ],
    }
    if key.rate is not None:
        facts["rate"] = key.rate.text
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode_api_key(key_id: str, data: bytes) -> ApiKey | None:
    """Decode a key from its JSON; return None for anything else."""
    try:
        facts = json.loads(data)
        return ApiKey(
            id=key_id,
            name=str(facts["name"]),
            scopes=tuple(map(str, facts["scopes"])),
            patterns=tuple(map(str, facts["queues"])),
            made_at=_read_time(facts["at"]),
            made_by=str(facts["by"]),
            expires_at=_read_end(facts["until"]),
            secrets=tuple(
                KeySecret(str(one["sha256"]), _read_time(one["at"]), _read_end(one["until"]))
                for one in facts["secrets"]
            ),
            rate=parse_request_rate("rate", facts["rate"]) if "rate" in facts else None,
        )
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, OSError, RecursionError):
        return None


def _check_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    given = (scopes,) if isinstance(scopes, str) else tuple(scopes)
    for scope in given:
        if scope not in SCOPES:
            remedy = f"must be some of {', '.join(SCOPES)}{nearest(str(scope), SCOPES)}"
            raise InvalidOptionError("scopes", scope, remedy)
    if not given:
        raise InvalidOptionError("scopes", given, f"give at least one of {', '.join(SCOPES)}")
    return tuple(name for name in SCOPES if name in given)


def _check_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    given = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    if not 1 <= len(given) <= _MOST_PATTERNS:
        remedy = f"give 1 to {_MOST_PATTERNS} patterns of queues, or {EVERYTHING!r} for all"
        raise InvalidOptionError("patterns", len(given), remedy)
    for pattern in given:
        if len(check_name("patterns", pattern)) > _LONGEST_PATTERN:
            remedy = f"must have at most {_LONGEST_PATTERN} characters each"
            raise InvalidOptionError("patterns", pattern, remedy)
    return tuple(dict.fromkeys(given))


def _add(option: str, now: datetime, duration: timedelta) -> datetime:
    try:
        return now + duration
    except OverflowError:
        raise InvalidOptionError(option, duration, "must end before the year 9999") from None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _second(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())


def _read_time(second: Any) -> datetime:
    return datetime.fromtimestamp(float(second), UTC)


def _read_end(second: Any) -> datetime | None:
    return None if second is None else _read_time(second)
