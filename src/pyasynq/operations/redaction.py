"""Redaction: secrets in payloads, results, headers and errors are replaced before anyone sees them.

A value is a secret if its name matches `SECRET_NAMES`. In JSON and MessagePack the value of such a field is
replaced as a whole, of any type. In text, such as errors, these are replaced: the text after `name=` or
`name:`, secrets of the task's payload and headers, passwords in URLs, and Bearer or Basic credentials. A
payload, or a string in JSON, counts as such text only if a secret or its name is in it. Bytes in any other
format are withheld as a whole if the name of a secret is in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyasynq._error_signature import error_signature
from pyasynq._human_text import counted
from pyasynq.errors import InvalidOptionError

from .decoding import Note, Pairs, read_msgpack
from .json_tokens import TOKEN, decode_string, json_tokens, value_end
from .secret_names import PathWalk, SecretNames, secret_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Self

    from pyasynq.task import TaskInfo

    from .deliveries import FailedExchange
    from .secret_names import SecretFields

MASK: Final = "[redacted]"
"""The text that replaces a secret."""

SECRET_NAMES: Final = r"pass|secret|token|api[-_]?key|auth|cookie|card|ssn"  # noqa: S105 - names, no secret
"""Regular expression of the names whose values are secrets; searched anywhere in a name; case is ignored."""

RedactHook: TypeAlias = "Callable[[TaskInfo], TaskInfo | None]"
"""Type of a user's redaction hook: it returns the task to show, or None if nothing is to be changed."""

_SHORTEST_SECRET: Final = 4
"""Minimum length of a secret, in characters, for it to be replaced outside its own field, too.

Shorter strings occur by chance in other text, which redaction would damage.
"""
_MOST_SECRETS: Final = 100
_MOST_BINARY: Final = 65_536
"""Maximum bytes of MessagePack in which single secrets are replaced; longer data are withheld."""
_PACKED_MASK: Final = bytes([0xA0 + len(MASK)]) + MASK.encode()
"""The mask, encoded as a MessagePack string."""
_URL_PASSWORD: Final = re.compile(r"(://[^\s/:@]{0,256}:)[^\s/@]{1,256}(?=@)")
_CREDENTIALS: Final = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}")


class Withheld(bytes):
    """Placeholder for bytes that the user may not see: a text that says so, and their size.

    Attributes:
        size: number of withheld bytes.
    """

    size: int

    def __new__(cls, data: bytes) -> Self:
        """Make the text that replaces the withheld bytes."""
        text = super().__new__(cls, f"[withheld: {counted(len(data), 'byte')}]".encode())
        text.size = len(data)
        return text


class Redactor:
    """Replaces secrets in everything that belongs to a task.

    Args:
        names: regular expression of the names of secrets.
        hook: the user's redaction hook, applied last. If it raises, all contents that it could have redacted
            are withheld.
        secret_fields: further names and paths of secret fields, by task type. A field matches if its whole
            name is equal, in any case. An operator adds the fields that workers have published.
    """

    def __init__(
        self,
        names: str = SECRET_NAMES,
        hook: RedactHook | None = None,
        secret_fields: SecretFields | None = None,
    ) -> None:
        re.compile(names)
        self._hook = hook
        self._secret_fields = (secret_fields,) if secret_fields else ()
        self._pattern = names

    @property
    def has_hook(self) -> bool:
        """Whether there is a user's hook, which may replace secrets by other texts than `MASK`."""
        return self._hook is not None

    def with_secret_fields(self, secret_fields: SecretFields) -> Redactor:
        """Return a redactor that also replaces these fields."""
        other = Redactor(self._pattern, self._hook)
        other._secret_fields = (*self._secret_fields, secret_fields)
        return other

    def task(self, task: TaskInfo, *, payload_view: bool) -> TaskInfo:
        """Return a task without its secrets; without `payload_view`, also without its contents."""
        if not payload_view:
            return _withhold(task)
        shown = self._redact(task)
        if self._hook is None:
            return shown
        try:
            return self._hook(shown) or shown
        except Exception:  # noqa: BLE001 - code of the user; what it would have hidden stays hidden
            return _withhold(task)

    def _redact(self, task: TaskInfo) -> TaskInfo:
        named = self._names_of(task.type)
        secrets: list[str] = []
        payload = self._redact_data(task.payload, named, secrets)
        headers = self._redact_headers(task.headers, named, secrets)
        note = task.progress and self._redact_text(task.progress.note, named, secrets)
        return replace(
            task,
            payload=payload,
            headers=headers,
            result=None if task.result is None else self._redact_data(task.result, named, secrets),
            last_error=self._redact_text(task.last_error, named, secrets),
            traceback=self._redact_text(task.traceback, named, secrets),
            attempts=tuple(
                replace(one, error=self._redact_text(one.error, named, secrets)) for one in task.attempts
            ),
            progress=task.progress and replace(task.progress, note=note or ""),
        )

    def _names_of(self, task_type: str) -> SecretNames:
        published = [name for fields in self._secret_fields for name in fields(task_type)]
        return secret_names(self._pattern, tuple(published))

    def data(self, data: bytes, task_type: str = "") -> bytes:
        """Return a payload without its secrets. In JSON, all bytes other than the secrets stay unchanged."""
        return self._redact_data(data, self._names_of(task_type), [])

    def text(self, text: str, task_type: str = "") -> str:
        """Return text, such as an error, without the parts that look like secrets, such as `password=...`."""
        return self._redact_text(text, self._names_of(task_type), ())

    def headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return headers, without the values of headers whose names mark them as secret."""
        return self._redact_headers(headers, self._names_of(""), [])

    def exchange(self, exchange: FailedExchange) -> FailedExchange:
        """Return a request and its answer without secrets, also those that the answer repeats."""
        named, secrets = self._names_of(exchange.queue), list[str]()
        headers = self._redact_headers(dict(exchange.headers), named, secrets)
        answer_headers = self._redact_headers(dict(exchange.answer_headers), named, secrets)
        body = self._redact_data(exchange.answer_body, named, secrets)
        return replace(
            exchange,
            url=self._redact_text(exchange.url, named, secrets),
            headers=tuple(headers.items()),
            reason=self._redact_text(exchange.reason, named, secrets),
            answer_headers=tuple(answer_headers.items()),
            answer_body=body,
        )

    def _redact_data(self, data: bytes, named: SecretNames, secrets: list[str]) -> bytes:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return self._redact_binary(data, named, secrets)
        if not (named.occurs_in(text) or "\\u" in text or any(secret in text for secret in secrets)):
            return data
        known = tuple(secrets)
        redacted = self._redact_json(text, named, secrets, known)
        return (self._redact_text(text, named, known) if redacted is None else redacted).encode()

    def _redact_binary(self, data: bytes, named: SecretNames, secrets: list[str]) -> bytes:
        """Return MessagePack without its secrets; withhold data in other formats if they contain a secret."""
        if not _is_suspect(data, named, secrets):
            return data
        found: list[_Secret] = []

        def find(name: str, start: int, end: int, value: Any) -> None:
            if named.match_loosely(name):
                # A nested secret is found before its outer secret, whose range includes it.
                while found and found[-1].start >= start:
                    found.pop()
                found.append(_Secret(len(name.encode()), start, end, value))

        if len(data) > _MOST_BINARY or read_msgpack(data, find) is None:
            return Withheld(data)
        pieces: list[bytes] = []
        rest: list[bytes] = []
        copied = 0
        for secret in found:
            _note_value(secret.value, secrets)
            pieces += data[copied : secret.start], _PACKED_MASK
            rest.append(data[copied : secret.start - secret.name_bytes])
            copied = secret.end
        pieces.append(data[copied:])
        rest.append(data[copied:])
        # Other texts, names and bytes may still contain a secret.
        return Withheld(data) if any(_is_suspect(one, named, secrets) for one in rest) else b"".join(pieces)

    def _redact_json(
        self, text: str, named: SecretNames, secrets: list[str], known: Collection[str]
    ) -> str | None:
        """Return JSON without its secrets, and collect them in `secrets`; None for text that is not JSON.

        `known` are secrets from other parts of the task, which are replaced too.
        """
        spans = json_tokens(text)
        if spans is None:
            return None
        pieces: list[str] = []
        copied = at = 0
        walk = PathWalk(named.paths)
        while at < len(spans):
            (first, last), end, safe = spans[at], at + 1, None
            if text[first] == '"' and end < len(spans) and text[spans[end][0]] == ":":
                name = decode_string(text[first:last])
                walk.enter(name)
                end += 1
                value, is_secret = end, named.match(name) or walk.is_secret
            else:
                value, is_secret = at, text[first] not in "}],:" and walk.is_secret
            if is_secret and value < len(spans):
                end = value_end(text, spans, value)
                first, last = spans[value][0], spans[end - 1][1]
                _note(text[first:last], secrets)
                safe = f'"{MASK}"'
            elif value == at:
                walk.pass_by(text[first])
                safe = self._redact_token(text[first:last], named, secrets, known)
            if safe is not None:
                pieces += text[copied:first], safe
                copied = last
            at = end
        return "".join([*pieces, text[copied:]])

    def _redact_token(
        self, token: str, named: SecretNames, secrets: list[str], known: Collection[str]
    ) -> str | None:
        """Return the replacement of a JSON value that has no name; None if the value is not a secret."""
        if token[0] == '"':
            return self._redact_string(decode_string(token), named, secrets, known)
        return f'"{MASK}"' if token in known else None

    def _redact_string(
        self, string: str, named: SecretNames, secrets: list[str], known: Collection[str]
    ) -> str | None:
        """Return a JSON string without its secrets (nested JSON, assignments); None if it has none."""
        if not (named.occurs_in(string) or any(secret in string for secret in known)):
            return None
        inner = self._redact_json(string, named, secrets, known) if string[:1] in {"{", "["} else None
        safe = self._redact_text(string, named, known) if inner is None else inner
        return None if safe == string else json.dumps(safe, ensure_ascii=False)

    def _redact_headers(
        self, headers: Mapping[str, str], named: SecretNames, secrets: list[str]
    ) -> dict[str, str]:
        shown = {}
        for name, value in headers.items():
            if named.match(name):
                _note(json.dumps(value), secrets)
                shown[name] = MASK
            else:
                shown[name] = self._redact_text(value, named, secrets)
        return shown

    def _redact_text(self, text: str, named: SecretNames, secrets: Collection[str]) -> str:
        text = _blot(text, secrets)
        text = named.assignment.sub(lambda found: f"{found['name']}{found['sign']}{MASK}", text)
        text = _URL_PASSWORD.sub(rf"\1{MASK}", text)
        return _CREDENTIALS.sub(rf"\1 {MASK}", text)


class _Secret(NamedTuple):
    """Position of the value of a secret in MessagePack, after the bytes of its name."""

    name_bytes: int
    start: int
    end: int
    value: Any


def _withhold(task: TaskInfo) -> TaskInfo:
    return replace(
        task,
        payload=Withheld(task.payload),
        headers={},
        result=None if task.result is None else Withheld(task.result),
        last_error=error_signature(task.last_error),
        traceback="",
        # A lock's key contains a name or a digest of the payload.
        unique_key="",
        attempts=tuple(replace(one, error=error_signature(one.error)) for one in task.attempts),
        progress=task.progress and replace(task.progress, note=""),
    )


def _note(value: str, secrets: list[str]) -> None:
    """Collect the strings and numbers of a secret JSON value, to redact them in errors and results too."""
    for found in TOKEN.finditer(value):
        token = found[0]
        secret = decode_string(token) if token[0] == '"' else token
        if len(secret) >= _SHORTEST_SECRET and secret not in {"true", "false", "null"}:
            secrets.append(secret)
        if len(secrets) >= _MOST_SECRETS:
            return


def _note_value(value: Any, secrets: list[str]) -> None:
    """Collect the strings and numbers of a secret MessagePack value."""
    if isinstance(value, Pairs):
        value = [one for _, one in value]
    if isinstance(value, list):
        for one in value:
            _note_value(one, secrets)
    elif isinstance(value, str) and not isinstance(value, Note) and len(secrets) < _MOST_SECRETS:
        _note(json.dumps(value), secrets)


def _is_suspect(data: bytes, named: SecretNames, secrets: Collection[str]) -> bool:
    return named.occurs_in(data.decode("latin-1")) or any(secret.encode() in data for secret in secrets)


def _blot(text: str, secrets: Iterable[str]) -> str:
    # A long secret may contain a short one.
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def check_not_redacted(name: str, data: bytes) -> None:
    """Raise `InvalidOptionError` for bytes that contain the mask: writing them would destroy a secret."""
    if MASK.encode() in data:
        raise InvalidOptionError(name, data, f"contains {MASK}; put the real value there")


def check_headers_not_redacted(headers: object) -> None:
    """Raise `InvalidOptionError` if the value of a header contains the mask."""
    for value in headers.values() if isinstance(headers, Mapping) else ():
        check_not_redacted("headers", str(value).encode("utf-8", "replace"))
