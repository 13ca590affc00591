"""Fields of task types of the kind `http`, each with its reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import check_switch
from pyasynq.errors import InvalidOptionError, nearest

from .field_names import join_path
from .host_rule import check_header_name
from .retry_rule import parse_duration
from .url_template import parse_url_template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_METHODS: Final = ("POST", "PUT", "PATCH", "GET", "DELETE")
_MOST_HEADERS: Final = 50
_LONGEST_VALUE: Final = 2_000
_LOWEST_STATUS: Final = 100
_HIGHEST_STATUS: Final = 599


def _read_method(path: str, value: object) -> str:
    if isinstance(value, str) and value.upper() in _METHODS:
        return value.upper()
    hint = nearest(value.upper(), _METHODS) if isinstance(value, str) else ""
    raise InvalidOptionError(path, type(value), f"must be one of {', '.join(_METHODS)}{hint}")


def _read_headers(path: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InvalidOptionError(path, type(value), 'must be a table of headers: { X-Team = "maps" }')
    if len(value) > _MOST_HEADERS:
        raise InvalidOptionError(path, len(value), f"must have {_MOST_HEADERS} headers at most")
    for name, text in value.items():
        place = join_path(path, check_header_name(join_path(path, str(name)), name))
        if name.lower() == "authorization":
            remedy = "is a secret: give it to the host in the service's file, as secret_headers"
            raise InvalidOptionError(place, str, remedy)
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            raise InvalidOptionError(place, type(text), "must be text in printable ASCII")
        if len(text) > _LONGEST_VALUE:
            raise InvalidOptionError(place, len(text), f"must have at most {_LONGEST_VALUE:,} characters")
    return dict(value)


def _read_statuses(path: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise InvalidOptionError(path, type(value), "must be a list of statuses, such as [404, 409]")
    for place, status in enumerate(value):
        is_number = isinstance(status, int) and not isinstance(status, bool)
        if not is_number or not _LOWEST_STATUS <= status <= _HIGHEST_STATUS:
            remedy = f"must be a status from {_LOWEST_STATUS} to {_HIGHEST_STATUS}"
            raise InvalidOptionError(f"{path}[{place}]", status, remedy)
    return tuple(sorted(set(value)))


def _read_callback(path: str, value: object) -> bool:
    check_switch(path, value)
    return bool(value)


def _read_max_age(path: str, value: object) -> float:
    return parse_duration(path, value, positive=True)


HTTP_FIELDS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "url": parse_url_template,
    "method": _read_method,
    "headers": _read_headers,
    "retry_on": _read_statuses,
    "archive_on": _read_statuses,
    "max_age": _read_max_age,
    "callback": _read_callback,
}
"""Parsers of field values by field; each raises `InvalidOptionError` with the field and the remedy."""


def check_http_fields(path: str, fields: Mapping[str, Any]) -> None:
    """Check the fields of the kind `http` in a task type's configuration.

    Raises:
        InvalidOptionError: another kind has such a field, the kind `http` has no `url`, or a status is in
            both `retry_on` and `archive_on`.
    """
    if fields.get("kind") != "http":
        for name in fields:
            if name in HTTP_FIELDS:
                raise InvalidOptionError(join_path(path, name), str, 'is for kind = "http" only')
        return
    if "url" not in fields:
        raise InvalidOptionError(join_path(path, "url"), None, 'give the URL: kind = "http" calls it')
    both = set(fields.get("retry_on", ())) & set(fields.get("archive_on", ()))
    if both:
        place = join_path(path, "archive_on")
        raise InvalidOptionError(place, min(both), "has a status that is in retry_on, too")
