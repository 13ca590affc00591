"""Fields of task types of the kind `list`, each with its reader."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pyasynq.errors import InvalidOptionError
from pyasynq.operations import MAX_SHARDS

from .field_names import join_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_SHARDS: Final = 8
_NAME: Final = re.compile(r"[^\s{}*?\[\]^\\]+")
"""Valid names: without braces, which choose the hash slot, and without wildcards of Redis ACL patterns."""


def _read_shards(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_SHARDS:
        raise InvalidOptionError(path, value, f"must be a whole number from 1 to {MAX_SHARDS}")
    return value


LIST_FIELDS: Final[Mapping[str, Callable[[str, object], Any]]] = {"shards": _read_shards}
"""Parsers of field values by field; each raises `InvalidOptionError` with the field and the remedy."""


def check_list_fields(path: str, fields: Mapping[str, Any]) -> None:
    """Check the fields of the kind `list` in a task type's configuration.

    Raises:
        InvalidOptionError: another kind has such a field, or the type's name cannot be part of a Redis key.
    """
    if fields.get("kind") != "list":
        for name in fields:
            if name in LIST_FIELDS:
                raise InvalidOptionError(join_path(path, name), str, 'is for kind = "list" only')
        return
    if not _NAME.fullmatch(fields["name"]):
        remedy = 'must have no spaces, braces, brackets or wildcards: kind = "list" names keys after it'
        raise InvalidOptionError(join_path(path, "name"), str, remedy)
