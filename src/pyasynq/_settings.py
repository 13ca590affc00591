"""Descriptions of settings: default, check, text form, flags and help, as metadata of a dataclass field.

The Python API, command-line flags, environment variables, configuration files and the reference page are made
from these descriptions.
"""

from __future__ import annotations

import re
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pyasynq._checks import (
    MAX_VALUE_BYTES,
    check_function,
    check_max_bytes,
    check_switch,
    check_text,
    check_whole,
    parse_positive_seconds,
    parse_seconds,
    parse_whole_number,
)
from pyasynq.errors._configuration import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")
_KEY: Final = "pyasynq"
_NONE: Final = "none"
"""Text that means "not set", for optional settings."""


class ValueKind(Protocol):
    """Protocol of a kind of values: checks them, parses them from text, and formats them."""

    @property
    def metavar(self) -> str:
        """Placeholder of a value in usage lines, such as `N`; empty for a switch."""

    @property
    def unit(self) -> str:
        """Unit of a number, for the reference page."""

    @property
    def has_text(self) -> bool:
        """Whether values of this kind can be written as text."""

    def describe_values(self) -> str:
        """Return which values are allowed, as a phrase in Markdown."""

    def check(self, name: str, value: object) -> None:
        """Raise `InvalidOptionError` for an invalid value."""

    def read(self, name: str, text: str) -> object:
        """Parse a text into a value. Raises `InvalidOptionError` for an invalid text."""

    def show(self, value: object) -> str:
        """Return a value as text. `read` can parse this text, if `has_text` is true."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Description of one setting.

    Attributes:
        kind: kind of its values.
        help: one or two sentences, for `--help`, environment variables and the reference page.
        flags: additional command-line flags, such as `-c`. For a switch, the flag that turns it off follows a
            slash, as in `--strict/--no-strict`.
        optional: whether None is a value, which means that it is not set.
        default_text: description of the default, where the value itself tells a reader nothing.
    """

    kind: ValueKind
    help: str
    flags: tuple[str, ...] = ()
    optional: bool = False
    default_text: str = ""

    def check(self, name: str, value: object) -> None:
        """Raise `InvalidOptionError` for an invalid value."""
        if value is not None or not self.optional:
            self.kind.check(name, value)

    def read(self, name: str, text: str) -> object:
        """Parse a text into a value. Raises `InvalidOptionError` for an invalid text."""
        if self.optional and text.strip().lower() == _NONE:
            return None
        return self.kind.read(name, text)

    def take(self, name: str, value: object) -> object:
        """Return a value from a configuration file: parse text, check anything else."""
        if isinstance(value, str):
            return self.read(name, value)
        self.check(name, value)
        return value

    def show(self, value: object) -> str:
        """Return a value as text."""
        return _NONE if value is None else self.kind.show(value)

    def describe_values(self) -> str:
        """Return which values are allowed, as a phrase in Markdown."""
        values = self.kind.describe_values()
        return f"{values}; or `{_NONE}`" if self.optional else values


def setting(
    default: _T,
    kind: ValueKind,
    help: str,  # noqa: A002 - the word of click and argparse
    *flags: str,
    optional: bool = False,
    make: Callable[[], _T] | None = None,
    default_text: str = "",
) -> _T:
    """Return the dataclass field of a setting; `make` is the default factory, for a mutable default."""
    metadata = {_KEY: Setting(kind, help, flags, optional or default is None, default_text)}
    if make is not None:
        return field(default_factory=make, metadata=metadata)
    return field(default=default, metadata=metadata)


def settings_of(kind: Any) -> Iterator[tuple[Field[Any], Setting]]:
    """Yield the fields of the dataclass `kind` that are settings, with their descriptions."""
    for one in fields(kind):
        if _KEY in one.metadata:
            yield one, one.metadata[_KEY]


def check_settings(values: Any) -> None:
    """Check every setting of a dataclass's instance. Raises `InvalidOptionError` for the first wrong one."""
    for one, described in settings_of(values):
        described.check(one.name, getattr(values, one.name))


# Kinds.


class _Kind:
    """Base class of the kinds of values that settings have; its attributes describe a kind in help texts."""

    __slots__ = ()
    metavar = "VALUE"
    unit = ""
    has_text = True

    def describe_values(self) -> str:
        """Return which values are allowed, as a phrase in Markdown."""
        return self.metavar.lower()

    def show(self, value: object) -> str:
        """Return a value as text."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Whole(_Kind):
    """Whole numbers of at least `least` and at most `most`."""

    least: int = 1
    most: int | None = None
    metavar: str = "NUMBER"
    unit: str = ""

    def describe_values(self) -> str:
        """Return the range."""
        end = "or more" if self.most is None else f"to {self.most:,}"
        return f"whole number, {self.least} {end}"

    def check(self, name: str, value: object) -> None:
        """Raise `InvalidOptionError` unless the value is a whole number in the range."""
        check_whole(name, value, self.least)
        if self.most is not None and isinstance(value, int) and value > self.most:
            raise InvalidOptionError(name, value, f"must be at most {self.most:,}")

    def read(self, name: str, text: str) -> object:
        """Parse a whole number."""
        number = parse_whole_number(text.strip())
        value = text if number is None else number
        self.check(name, value)
        return value


_SPAN: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)?")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Seconds(_Kind):
    """Durations: seconds or a `timedelta`; as text also `500ms`, `5m`, `1h30m`."""

    positive: bool = False
    least: float = 0.0
    metavar: str = "SECONDS"
    unit: str = "s"

    def describe_values(self) -> str:
        """Return the shortest duration."""
        return f"duration, {'more than 0' if self.positive else f'{self.least:g} s or more'}"

    def check(self, name: str, value: object) -> None:
        """Raise `InvalidOptionError` unless the value is a valid duration."""
        seconds = (parse_positive_seconds if self.positive else parse_seconds)(name, value)
        if seconds < self.least:
            raise InvalidOptionError(name, value, f"must be at least {self.least:g} second")

    def read(self, name: str, text: str) -> object:
        """Parse a duration into seconds."""
        value = _seconds_of_text(text)
        if value is None:
            raise InvalidOptionError(name, text, "must be a duration: 30, 500ms, 5m, 1h30m")
        self.check(name, value)
        return value

    def show(self, value: object) -> str:
        """Return the duration as text in seconds."""
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        return f"{seconds:.12g}" if isinstance(seconds, float) else str(seconds)


def _seconds_of_text(text: str) -> float | None:
    """Return the seconds of `30`, `1.5s` or `1h30m`; None for other text."""
    seconds, at, text = 0.0, 0, text.strip()
    while at < len(text):
        match = _SPAN.match(text, at)
        if match is None or (match["unit"] is None and match.span() != (0, len(text))):
            return None
        seconds += float(match["number"]) * _UNIT_SECONDS[match["unit"] or "s"]
        at = match.end()
    return seconds if text else None


_WORDS: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


@dataclass(frozen=True, slots=True)
class Switch(_Kind):
    """Booleans: True or False."""

    metavar: str = ""

    def describe_values(self) -> str:
        """Return the word that the page of settings explains."""
        return "switch"

    def check(self, name: str, value: object) -> None:
        """Raise `InvalidOptionError` unless the value is a bool."""
        check_switch(name, value)

    def read(self, name: str, text: str) -> object:
        """Return True for `1`, `true`, `yes` and `on`, False for `0`, `false`, `no` and `off`."""
        value = _WORDS.get(text.strip().lower())
        if value is None:
            raise InvalidOptionError(name, text, "must be 1, true, yes or on; or 0, false, no or off")
        return value

    def show(self, value: object) -> str:
        """Return `true` or `false`."""
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class WordChoice(_Kind):
    """Setting whose value is one of several words."""

    words: tuple[str, ...]

    @property
    def metavar(self) -> str:  # type: ignore[override] # of the instance, not of the class
        """The words, as the placeholder of the value in usage lines."""
        return "|".join(self.words)

    def describe_values(self) -> str:
        """Return the words."""
        *others, last = (f"`{word}`" for word in self.words)
        return f"{', '.join(others)} or {last}"

    def check(self, name: str, value: object) -> None:
        """Raise `InvalidOptionError` unless the value is one of the words."""
        if value not in self.words:
            *others, last = map(repr, self.words)
            raise InvalidOptionError(name, value, f"must be {', '.join(others)} or {last}")

    def read(self, name: str, text: str) -> object:
        """Parse one of the words."""
        word = text.strip().lower()
        self.check(name, word)
        return word


_SIZE: Final = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[KMGT]?)(i?B)?", re.IGNORECASE)
_MOST_BYTES: Final = 2**63
_UNIT_BYTES: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True)
class Size(_Kind):
    """Numbers of bytes; as text also `512M` and `1.5G`, with units of 1,024."""

    of_value: bool = False
    """Whether the size limits one value stored in Redis, so that Redis' own limit applies too."""
    metavar: str = "SIZE"
    unit: str = "bytes"

    def describe_values(self) -> str:
        """Return the largest size, if Redis limits it."""
        return f"size, at most {MAX_VALUE_BYTES:,} bytes" if self.of_value else "size, 1 byte or more"

    def check(self, name: str, value: object) -> None:
        """Raise `InvalidOptionError` unless the value is a valid number of bytes."""
        if self.of_value:
            check_max_bytes(name, value)
        else:
            check_whole(name, value, 1)

    def read(self, name: str, text: str) -> object:
        """Parse a size into bytes."""
        match = _SIZE.fullmatch(text.strip())
        size = float(match["number"]) * _UNIT_BYTES[match["unit"].upper()] if match else 0.0
        if not 1 <= size < _MOST_BYTES:
            raise InvalidOptionError(name, text, "must be a size: 512M or 1.5G")
        self.check(name, int(size))
        return int(size)


@dataclass(frozen=True, slots=True)
class Text(_Kind):
    """Text, such as an address or a path."""

    metavar: str = "TEXT"

    def check(self, name: str, value: object) -> None:
        """Raise `InvalidOptionError` unless the value is text."""
        check_text(name, value)

    def read(self, name: str, text: str) -> object:
        """Return the text unchanged; raise `InvalidOptionError` for a blank one."""
        if not text.strip():
            raise InvalidOptionError(name, text, "must contain one or more characters that are not blank")
        return text


@dataclass(frozen=True, slots=True)
class Function(_Kind):
    """Functions, which only Python code can give, not a flag or a file."""

    metavar: str = "FUNCTION"
    has_text: bool = False

    def check(self, name: str, value: object) -> None:
        """Raise `InvalidOptionError` unless the value is callable."""
        check_function(name, value)

    def read(self, name: str, text: str) -> object:
        """Raise `InvalidOptionError`: no text can give a function."""
        raise InvalidOptionError(name, text, "is a function: set it in Python, as in App(worker=...)")

    def show(self, value: object) -> str:
        """Return the function's name."""
        module = getattr(value, "__module__", None)
        name = getattr(value, "__qualname__", type(value).__qualname__)
        return f"{module}.{name}" if module else name


@dataclass(frozen=True, slots=True)
class Checked(_Kind):
    """Kind of values that one function checks, and that a second function can parse from text."""

    function: Callable[[str, object], object]
    reader: Callable[[str, str], object] | None = None
    shower: Callable[[object], str] = str
    metavar: str = "VALUE"
    """Placeholder of the value in usage lines.

    It is empty if the command-line flag is a switch, even if environment and file allow more values.
    """
    values: str = ""
    """Which values are allowed; by default what the placeholder says."""

    def describe_values(self) -> str:
        """Return which values are allowed, as a phrase in Markdown."""
        return self.values or f"`{self.metavar}`"

    @property
    def has_text(self) -> bool:  # type: ignore[override] # of the instance, not of the class
        """Whether the setting has a parser for text."""
        return self.reader is not None

    def check(self, name: str, value: object) -> None:
        """Raise `InvalidOptionError` for a value that the function refuses."""
        self.function(name, value)

    def read(self, name: str, text: str) -> object:
        """Parse a text into a value, with the setting's own parser."""
        if self.reader is None:
            raise InvalidOptionError(name, text, "is a table: set it in a file or in Python")
        return self.reader(name, text)

    def show(self, value: object) -> str:
        """Return a value as text."""
        return self.shower(value)
