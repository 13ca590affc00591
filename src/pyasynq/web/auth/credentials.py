"""The credentials file: names, roles, queues and scrypt hashes of passwords; hashes of bearer tokens.

One line for each password and token: `password:mira:operator:*:scrypt$15$8$1$…` or
`token:ci:viewer:team-*:2027-01-31:sha256$…`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from pyasynq._visible_text import visible
from pyasynq.errors import ConfigurationError
from pyasynq.operations import ROLES

_COST: Final = 15
"""Base-2 logarithm of scrypt's cost parameter N: each guess takes 32 MiB and about 70 ms."""
_HIGHEST_COST: Final = 18
_BLOCK: Final = 8
_SALT_BYTES: Final = 16
_KEY_BYTES: Final = 32
_MEMORY: Final = 512 * 1_024 * 1_024
_LONGEST_PASSWORD: Final = 1_024
_TOKEN_PREFIX: Final = "pyasynq_"  # noqa: S105 - the beginning of every token
_PASSWORD_FIELDS: Final = 5
_TOKEN_FIELDS: Final = 6


@dataclass(frozen=True, slots=True)
class Credential:
    """A line of the credentials file: a person's password or a program's token."""

    name: str
    role: str
    queues: tuple[str, ...]
    """Patterns of the queues that the owner of the credential may see."""
    secret_hash: str
    expires: date | None = None
    """Last day on which a token is valid; None for a password."""

    @property
    def fingerprint(self) -> str:
        """Hash that changes with the password; a change ends the sessions that began before."""
        return hashlib.sha256(self.secret_hash.encode()).hexdigest()[:16]


class CredentialsFile:
    """A file of passwords and tokens, read again when it has changed.

    Args:
        path: path of the file, which `pyasynq web passwd` writes.

    Raises:
        ConfigurationError: when the file cannot be read, or a line is invalid.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp: tuple[int, int] | None = None
        self._passwords: dict[str, Credential] = {}
        self._tokens: dict[str, Credential] = {}
        self._absent = Credential("", "viewer", (), hash_password(secrets.token_hex(16)))
        self._load()

    def find(self, name: str) -> Credential | None:
        """Return the credential of the person with that name."""
        self._load()
        return self._passwords.get(name)

    def check_password(self, name: str, password: str) -> Credential | None:
        """Return the person's credential if the password is right, else None.

        The check takes equally long for an unknown name (protection against timing attacks).
        """
        found = self.find(name)
        is_right = verify_password(password, (found or self._absent).secret_hash)
        return found if found is not None and is_right else None

    def check_token(self, token: str, today: date | None = None) -> Credential | None:
        """Return the credential of a bearer token; None if the token is unknown or has expired."""
        self._load()
        found = self._tokens.get(hash_token(token))
        if found is None or (found.expires and found.expires < (today or datetime.now(UTC).date())):
            return None
        return found

    def _load(self) -> None:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            lines = self._path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the credentials file cannot be read: {error}") from error
        passwords: dict[str, Credential] = {}
        tokens: dict[str, Credential] = {}
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                self._add(line.strip(), number, passwords, tokens)
        self._passwords, self._tokens, self._stamp = passwords, tokens, stamp

    def _add(
        self, line: str, number: int, passwords: dict[str, Credential], tokens: dict[str, Credential]
    ) -> None:
        kind, *fields = line.split(":")
        try:
            if kind == "password" and len(fields) == _PASSWORD_FIELDS - 1:
                name, role, queues, secret_hash = fields
                passwords[name] = _make_credential(name, role, queues, secret_hash, None)
                return
            if kind == "token" and len(fields) == _TOKEN_FIELDS - 1:
                name, role, queues, expires, secret_hash = fields
                tokens[secret_hash] = _make_credential(
                    name, role, queues, secret_hash, date.fromisoformat(expires)
                )
                return
        except ValueError as error:
            raise ConfigurationError(f"line {number} of {visible(self._path)}: {error}") from error
        raise ConfigurationError(f"line {number} of {visible(self._path)} is neither a password nor a token")


def _make_credential(name: str, role: str, queues: str, secret_hash: str, expires: date | None) -> Credential:
    if role not in ROLES:
        raise ValueError(f"the role is one of {', '.join(ROLES)}")
    if not name:
        raise ValueError("the name is empty")
    return Credential(name, role, tuple(queues.split(",")), secret_hash, expires)


def hash_password(password: str, salt: bytes | None = None, cost: int = _COST) -> str:
    """Hash a password with scrypt, as `scrypt$15$8$1$salt$key`. It takes about 70 ms and 32 MiB."""
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    key = hashlib.scrypt(
        password.encode("utf-8", "surrogatepass")[:_LONGEST_PASSWORD],
        salt=salt,
        n=1 << cost,
        r=_BLOCK,
        p=1,
        maxmem=_MEMORY,
        dklen=_KEY_BYTES,
    )
    return f"scrypt${cost}${_BLOCK}$1${_encode(salt)}${_encode(key)}"


def verify_password(password: str, stored: str) -> bool:
    """Return whether a password matches a hash."""
    try:
        scheme, cost, _, _, salt, _ = stored.split("$")
        if scheme != "scrypt" or not 1 <= int(cost) <= _HIGHEST_COST:
            return False
        return hmac.compare_digest(hash_password(password, base64.b64decode(salt), int(cost)), stored)
    except ValueError:
        return False


def password_line(name: str, role: str, queues: str, password: str) -> str:
    """Return a person's line for the credentials file."""
    if ":" in name or not name.isprintable():
        raise ConfigurationError("a name has no colon, and no character that cannot be seen")
    _make_credential(name, role, queues, "", None)
    return f"password:{name}:{role}:{queues}:{hash_password(password)}"


def make_token() -> str:
    """Return a new bearer token of 256 bits."""
    return _TOKEN_PREFIX + secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """Return the hash under which a token is stored; a token is random, so a quick hash is enough."""
    return "sha256$" + hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def token_line(name: str, role: str, queues: str, expires: date, token: str) -> str:
    """Return a token's line for the credentials file."""
    if ":" in name or not name.isprintable():
        raise ConfigurationError("a name has no colon, and no character that cannot be seen")
    _make_credential(name, role, queues, "", expires)
    return f"token:{name}:{role}:{queues}:{expires.isoformat()}:{hash_token(token)}"


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
