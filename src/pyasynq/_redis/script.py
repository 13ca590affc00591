"""A Lua script as drivers run it: by the SHA-1 of its text (EVALSHA), or by its text (EVAL) if needed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


class ScriptForm:
    """Source text of a script, kept as pieces that scripts share.

    Attributes:
        sha: SHA-1 of the text in hex, by which EVALSHA names the script.
    """

    __slots__ = ("_pieces", "sha")

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self.sha = hashlib.sha1(b"".join(pieces), usedforsecurity=False).hexdigest()

    @property
    def text(self) -> bytes:
        """Join the pieces. The text is not kept: it is sent once to each server, and all texts take 1 MB."""
        return b"".join(self._pieces)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script in its two forms.

    Attributes:
        name: folder and file, such as `"task/enqueue"`.
        drains: whether the script may run while Redis is at `maxmemory`: it frees memory, settles or reads.
        flagged: form with the flags line, for Redis 7 and Valkey.
        plain: form without the flags line, for Redis 6.2.
        only_reads: whether the script changes nothing, and so may run on a replica or for a read-only user.
    """

    name: str
    drains: bool
    flagged: ScriptForm
    plain: ScriptForm
    only_reads: bool = False

    def form(self, flags: bool) -> ScriptForm:  # noqa: FBT001 - the form's one property
        """Return the form with the flags line (`#!lua`), or without it for a server that cannot read it."""
        return self.flagged if flags else self.plain
