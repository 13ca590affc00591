"""A Lua script as drivers run it: by the SHA-1 of its text, or by the text where a server lacks it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


class ScriptForm:
    """One text of a script, in the pieces that it shares with other scripts.

    Attributes:
        sha: SHA-1 of the text in hex, by which EVALSHA names the script.
    """

    __slots__ = ("_pieces", "sha")

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self.sha = hashlib.sha1(b"".join(pieces), usedforsecurity=False).hexdigest()

    @property
    def text(self) -> bytes:
        """Put the pieces together: a text is sent once to each server, and all texts would take 1 MB."""
        return b"".join(self._pieces)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script in its two forms.

    Attributes:
        name: folder and file, such as `"task/enqueue"`.
        drains: whether it may run while Redis is at `maxmemory`: it frees memory, settles or only reads.
        flagged: form with the flags line, for Redis 7 and Valkey.
        plain: form without the flags line, for Redis 6.2.
        only_reads: the script changes nothing, so it runs on a replica and for a user who may only read.
    """

    name: str
    drains: bool
    flagged: ScriptForm
    plain: ScriptForm
    only_reads: bool = False

    def form(self, flags: bool) -> ScriptForm:  # noqa: FBT001 - the form's one property
        """Return the form for a server that reads, or does not read, the flags line."""
        return self.flagged if flags else self.plain
