"""Template of a URL: `https://billing.internal/deliver/{order_id}`, filled from a task's params."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from pyasynq.errors import InvalidOptionError, PyasynqError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LONGEST: Final = 8_000
_LONGEST_HOST: Final = 253
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class TemplateError(PyasynqError):
    """Error: the params of a task do not fit the URL of its type."""


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """A checked template; `parse_url_template` makes one.

    Attributes:
        text: the template.
        host: host of the URL; params cannot change it.
        port: port of the URL.
        is_secure: whether the scheme is `https`.
    """

    text: str
    host: str
    port: int
    is_secure: bool

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the params that fill the template, in the order of their placeholders."""
        return tuple(_PLACE.findall(self.text))

    def fill(self, params: object) -> str:
        """Return the URL for the params of a task; each value is percent-encoded.

        Raises:
            TemplateError: a value is missing, or does not fit its placeholder; the error names the param.
        """
        values: Mapping[str, object] = params if isinstance(params, dict) else {}
        path, mark, query = self.text.partition("?")
        filled = "/".join(_fill_segment(segment, values) for segment in path.split("/"))
        url = filled + mark + _PLACE.sub(lambda place: _encode(place[1], values), query)
        if len(url) > _LONGEST:
            raise TemplateError(f"the URL is longer than {_LONGEST:,} characters with these params")
        return url


def parse_url_template(path: str, value: object) -> UrlTemplate:
    """Parse the template of a URL.

    Raises:
        InvalidOptionError: the text cannot be a URL for the kind `http`; the error names the field.
    """
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise InvalidOptionError(path, type(value), "must be a URL in ASCII, such as https://a.example/{id}")
    if len(value) > _LONGEST:
        raise InvalidOptionError(path, len(value), f"must have at most {_LONGEST:,} characters")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise InvalidOptionError(path, str, "must be a URL, such as https://a.example/{id}") from None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise InvalidOptionError(path, str, "must begin with https:// or http:// and a host")
    _check_authority(path, parts)
    if "#" in value:
        raise InvalidOptionError(path, str, "must have no fragment (#)")
    if "\\" in value or set("{}%") & set(parts.netloc):
        remedy = "must name the host itself: params fill the path and the query only"
        raise InvalidOptionError(path, str, remedy)
    if set("{}") & set(_PLACE.sub("", value)):
        raise InvalidOptionError(
            path, str, "has a brace that is not the place of a param, such as {order_id}"
        )
    if {".", ".."} & set(parts.path.split("/")):
        raise InvalidOptionError(path, str, "must have no segments . and ..")
    return UrlTemplate(value, parts.hostname, port or _DEFAULT_PORTS[parts.scheme], parts.scheme == "https")


def _check_authority(path: str, parts: SplitResult) -> None:
    if len(parts.hostname or "") > _LONGEST_HOST:
        remedy = f"must have a host of at most {_LONGEST_HOST} characters, as names in the DNS have"
        raise InvalidOptionError(path, str, remedy)
    if "@" in parts.netloc:
        remedy = "must hold no user or password: give secret_headers to the host"
        raise InvalidOptionError(path, str, remedy)


def _fill_segment(segment: str, values: Mapping[str, object]) -> str:
    """Fill a segment of the path; refuse values that would change the path (path traversal)."""
    filled = _PLACE.sub(lambda place: _encode(place[1], values), segment)
    if filled != segment and filled in {"", ".", ".."}:
        name = _PLACE.findall(segment)[0]
        raise TemplateError(f"params.{name} cannot be a segment of the path: it is empty, or a dot or two")
    return filled


def _encode(name: str, values: Mapping[str, object]) -> str:
    if name not in values:
        raise TemplateError(f"params.{name} is missing: the URL of the type needs it")
    value = values[name]
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise TemplateError(f"params.{name} must be text, a number or a bool, as the URL needs it")
    try:
        return quote(str(value).encode(), safe="")
    except UnicodeEncodeError:
        raise TemplateError(f"params.{name} is not Unicode text") from None
