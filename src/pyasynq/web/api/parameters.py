"""Query parameters of the API: declared once, checked, and described in OpenAPI."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from pyasynq._visible_text import visible
from pyasynq.errors import nearest
from pyasynq.task import TaskState

from .problem import ProblemError, wrong_value

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_QUERY: Final = 16_000
_MOST_FIELDS: Final = 200
_LONGEST_TEXT: Final = 4_000
_LONGEST_NUMBER: Final = 18
_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)


class Type(Enum):
    """Type of a parameter's value."""

    TEXT = "text"
    WHOLE = "whole number"
    SECONDS = "seconds"
    FLAG = "true or false"
    TIME = "RFC 3339 with a zone"


_SCHEMAS: Final[dict[Type, dict[str, Any]]] = {
    Type.TEXT: {"type": "string", "maxLength": _LONGEST_TEXT},
    Type.WHOLE: {"type": "integer"},
    Type.SECONDS: {"type": "number"},
    Type.FLAG: {"type": "boolean"},
    Type.TIME: {"type": "string", "format": "date-time"},
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter."""

    name: str
    about: str
    type: Type = Type.TEXT
    default: Any = None
    """Value if the parameter is missing."""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    is_list: bool = False
    """Whether the parameter may be repeated; its value is then a list, empty if it is missing."""
    is_required: bool = False

    def read(self, texts: Sequence[str]) -> Any:
        """Parse the values that the query string has for this parameter.

        Raises:
            ProblemError: the parameter is missing, given too often, or invalid.
        """
        if not texts:
            if self.is_required:
                raise ProblemError(
                    422, "missing_value", f"{self.name} is missing.", self.about, field=self.name
                )
            return [] if self.is_list else self.default
        if self.is_list:
            if self.most is not None and len(texts) > self.most:
                raise wrong_value(self.name, f"Give it at most {self.most:,} times.")
            return [self._parse(text) for text in texts]
        if len(texts) > 1:
            raise wrong_value(self.name, "Give it once.")
        return self._parse(texts[0])

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameter's value."""
        one = dict(_SCHEMAS[self.type])
        if self.choices:
            one = {"type": "string", "enum": list(self.choices)}
        if self.is_list:
            return {"type": "array", "items": one, **({"maxItems": self.most} if self.most else {})}
        bounds = {"minimum": self.least, "maximum": self.most, "default": self.default}
        return one | {name: value for name, value in bounds.items() if value is not None}

    def _parse(self, text: str) -> Any:
        match self.type:
            case Type.FLAG:
                if text not in {"true", "false"}:
                    raise wrong_value(self.name, "Write true or false.")
                return text == "true"
            case Type.TIME:
                return self._parse_time(text)
            case Type.WHOLE | Type.SECONDS:
                return self._check_bounds(self._parse_number(text))
        if self.choices and text not in self.choices:
            raise wrong_value(self.name, f"Write one of {', '.join(self.choices)}.")
        if len(text) > _LONGEST_TEXT:
            raise wrong_value(self.name, f"Write at most {_LONGEST_TEXT:,} characters.")
        return text

    def _parse_number(self, text: str) -> float:
        is_plain = text.isascii() and text.removeprefix("-").isdigit() and len(text) <= _LONGEST_NUMBER
        if is_plain:
            return int(text)
        try:
            number = float(text) if self.type is Type.SECONDS and text.isascii() else math.nan
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise wrong_value(self.name, f"Write a {self._describe()}.")
        return number

    def _check_bounds(self, number: float) -> float:
        if (self.least is not None and number < self.least) or (self.most is not None and number > self.most):
            raise wrong_value(self.name, f"Write a {self._describe()}.")
        return number

    def _describe(self) -> str:
        kind = "whole number" if self.type is Type.WHOLE else "number of seconds"
        ends = [f"from {self.least:,}"] if self.least is not None else []
        ends += [f"to {self.most:,}"] if self.most is not None else []
        return " ".join([kind, *ends])

    def _parse_time(self, text: str) -> datetime:
        try:
            moment = datetime.fromisoformat(text.replace(" ", "+"))
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None or not _EARLIEST <= moment <= _LATEST:
            raise wrong_value(self.name, "Write a time with a zone, such as 2026-11-25T14:05:00Z.")
        return moment


def read_parameters(query: bytes, known: Sequence[Parameter]) -> dict[str, Any]:
    """Return the values of the parameters of a route, by name.

    Raises:
        ProblemError: for a query that is too long, an unknown name, or an invalid value.
    """
    if len(query) > _LONGEST_QUERY:
        raise ProblemError(
            414, "query_too_long", "The address is too long.", "Send ids in the body of a POST."
        )
    try:
        pairs = parse_qsl(
            query.decode("latin-1"),
            keep_blank_values=True,
            max_num_fields=_MOST_FIELDS,
            errors="surrogateescape",
        )
    except ValueError:
        raise ProblemError(422, "query_too_long", f"More than {_MOST_FIELDS} parameters.") from None
    texts: dict[str, list[str]] = {}
    names = {parameter.name for parameter in known}
    for name, text in pairs:
        if name not in names:
            known_names = f"The parameters are {', '.join(sorted(names))}" if names else "There is none"
            remedy = f"{known_names}{nearest(name, names)}".removesuffix("?") + "."
            raise ProblemError(
                422, "unknown_parameter", "There is no such parameter.", remedy, field=visible(name[:100])
            )
        texts.setdefault(name, []).append(text)
    return {parameter.name: parameter.read(texts.get(parameter.name, ())) for parameter in known}


CURSOR: Final = Parameter("cursor", "`next` of the page before; without it, the first page.", default="")
LIMIT: Final = Parameter("limit", "Most items of the page.", Type.WHOLE, 50, 1, 500)
DRY_RUN: Final = Parameter(
    "dry_run", "Check everything, change nothing, and say what would be done.", Type.FLAG, default=False
)
QUERY: Final = Parameter("q", "Query; docs/query.md has the language.", default="")
QUEUE_NAMES: Final = Parameter(
    "queue", "Name of a queue; may be given several times.", is_list=True, most=100
)
STATE: Final = Parameter(
    "state", "State of the tasks.", choices=tuple(state.value for state in TaskState), is_required=True
)
SINCE: Final = Parameter("since", "Only what is not older.", Type.TIME)
UNTIL: Final = Parameter("until", "Only what is not newer.", Type.TIME)
REASON: Final = Parameter("reason", "Why, for the audit.", default="")
