"""Names of configuration fields: snake case, Go's spelling (`MaxRun`), and names of later versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyasynq.errors import InvalidOptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Collection

_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LONGEST_SHOWN: Final = 60


def to_snake_case(name: str) -> str:
    """Return a name in snake case: `max_run` for `MaxRun`."""
    return _WORD_START.sub("_", name).lower() if name.isascii() else name


def read_table(
    path: str,
    value: object,
    known: Collection[str],
    *,
    aliases: Mapping[str, str] | None = None,
    later: Collection[str] = (),
) -> dict[str, Any]:
    """Return the fields of a table by their names in snake case; the table may have Go's spelling.

    Args:
        path: dotted path of the table in the file, for error messages; empty for the whole file.
        value: the table.
        known: names of all fields.
        aliases: names of fields by their aliases.
        later: names that only later versions know.

    Raises:
        InvalidOptionError: for anything but a table, an unknown name, and a field that is given twice.
    """
    if not isinstance(value, Mapping):
        raise InvalidOptionError(path, type(value), "must be a table of fields")
    fields: dict[str, Any] = {}
    for given, content in value.items():
        name = to_snake_case(given)
        name = (aliases or {}).get(name, name)
        place = join_path(path, given)
        if name in later:
            remedy = "comes with a later version of the service: leave it out"
            raise InvalidOptionError(place, type(content), remedy)
        if name not in known:
            raise InvalidOptionError(place, type(content), _explain_unknown(name, known))
        if name in fields:
            raise InvalidOptionError(place, type(content), f"{name} is given twice, in two spellings")
        fields[name] = content
    return fields


def join_path(path: str, name: str) -> str:
    """Return the dotted path of a table's field: `tasks.resize.max_run`."""
    short = name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
    return f"{path}.{short}" if path else short


def _explain_unknown(name: str, known: Collection[str]) -> str:
    hint = nearest(name, known) or f"; the fields are {', '.join(sorted(known))}"
    return f"this field is unknown{hint}"
