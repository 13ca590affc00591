"""Template of one argument of a command: `--path={path}`, filled from a task's params."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq.errors import InvalidOptionError, PyasynqError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PIECE: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MOST_BYTES: Final = 100_000
"""Maximum bytes of one argument; the limit of Linux is 131,071."""


class ArgumentError(PyasynqError):
    """Error: the params of a task do not fit the arguments of its command."""


@dataclass(frozen=True, slots=True)
class ArgumentTemplate:
    """Checked template of a command's argument; `parse_argument` makes one.

    Attributes:
        text: the template; `{{` and `}}` stand for literal braces.
        allow_dash: whether a value may make the argument begin with a dash.
    """

    text: str
    allow_dash: bool = False

    @property
    def has_places(self) -> bool:
        """Whether the template has placeholders for params."""
        return bool(self.places)

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the params that fill the template, in the order of their placeholders."""
        return tuple(match[1] for match in _PIECE.finditer(self.text) if match[1])

    def fill(self, params: object) -> str:
        """Return the argument for the params of a task.

        If the template has a slash, no value may contain a slash or be `..` (path traversal).

        Raises:
            ArgumentError: a value is missing, or does not fit its placeholder; the error names the param.
        """
        values: Mapping[str, object] = params if isinstance(params, dict) else {}
        names = self.places
        if not names:
            return _unescape(self.text)
        segments = self.text.split("/")
        filled = "/".join(_fill_segment(segment, values, is_path=len(segments) > 1) for segment in segments)
        if filled.startswith("-") and not self.text.startswith("-") and not self.allow_dash:
            remedy = "begins with a dash, which would make it an option of the command"
            raise ArgumentError(f"params.{names[0]} {remedy}")
        if len(filled.encode()) > _MOST_BYTES:
            raise ArgumentError(f"params.{names[0]} makes an argument of more than {_MOST_BYTES:,} bytes")
        return filled


def parse_argument(path: str, value: object, *, allow_dash: bool = False) -> ArgumentTemplate:
    """Parse the template of an argument."""
    if not isinstance(value, str):
        raise InvalidOptionError(path, type(value), "must be text: each argument is one text of the list")
    if "\0" in value:
        raise InvalidOptionError(path, str, "must hold no NUL character")
    if set("{}") & set(_PIECE.sub("", value)):
        remedy = "has a brace that is not the place of a param, such as {path}; write {{ or }} for a brace"
        raise InvalidOptionError(path, str, remedy)
    return ArgumentTemplate(value, allow_dash)


def _unescape(text: str) -> str:
    return text.replace("{{", "{").replace("}}", "}")


def _fill_segment(segment: str, values: Mapping[str, object], *, is_path: bool) -> str:
    """Fill the segment between two slashes; refuse values that would change the path (path traversal)."""
    names: list[str] = []

    def fill(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        names.append(match[1])
        return _to_text(match[1], values, is_name=is_path)

    filled = _PIECE.sub(fill, segment)
    if is_path and names and filled in {"", ".", ".."}:
        raise ArgumentError(f"params.{names[0]} cannot be a name in a path: it is empty, or a dot or two")
    return filled


def _to_text(name: str, values: Mapping[str, object], *, is_name: bool) -> str:
    if name not in values:
        raise ArgumentError(f"params.{name} is missing: an argument of the command needs it")
    value = values[name]
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise ArgumentError(f"params.{name} must be text, a number or a bool, as the command needs it")
    text = str(value)
    if "\0" in text:
        raise ArgumentError(f"params.{name} holds a NUL character")
    if is_name and ("/" in text or text in {".", ".."}):
        raise ArgumentError(f"params.{name} must be a name in a path: without a slash, and not a dot or two")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"params.{name} is not Unicode text") from None
    return text
