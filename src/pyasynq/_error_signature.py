"""Signatures of errors: error texts without the parts that differ between tasks."""

from __future__ import annotations

import hashlib
import re
from typing import Final

POISON_PREFIX: Final = "poison: its "
"""Beginning of the error text of each poison task. A Lua script searches for it in task messages."""
_POISON_BEGINNINGS: Final = ("poison: its worker crashed", "poison: its lease ended")
_POISON_COUNT: Final = re.compile(rf"^({'|'.join(_POISON_BEGINNINGS)}) (?:once|\d+ times)\b")
_POISON_SERVER: Final = re.compile(r", last on server .*$")
_CHARACTERS: Final = 200
_READ_CHARACTERS: Final = 4_000
"""Number of characters of an error's first line that are read.

The limit bounds the run time of the regular expressions, even for hostile errors.
"""
_VARIABLE_PARTS: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<id>"),
        (r"\b0[xX][0-9a-fA-F]+\b", "<hex>"),
        (r"\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b", "<hex>"),
        (r'"[^"]*"', "<text>"),
        (r"(?<!\w)'[^']*'(?!\w)", "<text>"),
        (r"\d+(?:\.\d+)*", "<n>"),
    )
)


def poison_error(losses: int, *, has_lapsed: bool = False) -> str:
    """Return the error text of a task that is archived as poison.

    Args:
        losses: number of crashes of its worker or, with `has_lapsed`, of leases that lapsed.
        has_lapsed: whether leases are counted, not crashes.
    """
    times = "once" if losses == 1 else f"{losses} times"
    if has_lapsed:
        return f"poison: its lease ended {times} without a sign of its worker"
    return f"poison: its worker crashed {times} while running it"


def is_poison_error(error: str) -> bool:
    """Return whether an error begins as `poison_error` does, in this or an earlier version."""
    return error.startswith(_POISON_BEGINNINGS)


def error_signature(error: str) -> str:
    """Return the first line of an error, at most 200 characters, without numbers, ids and quotations."""
    line = error.strip().partition("\n")[0][:_READ_CHARACTERS]
    if is_poison_error(line):
        # Poison tasks of all servers are one group, whatever the form of the number.
        line = _POISON_SERVER.sub("", _POISON_COUNT.sub(r"\1 <n> times", line))
    for pattern, name in _VARIABLE_PARTS:
        line = pattern.sub(name, line)
    return line[:_CHARACTERS]


def signature_id(signature: str) -> str:
    """Return the id of a signature: eight hexadecimal digits, as in the search term `error:sig:`."""
    return hashlib.blake2b(signature.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
