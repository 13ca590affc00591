"""Errors of an embedded server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from pathlib import Path


class EmbeddedServerError(PyasynqError):
    """The embedded server cannot be used; the message says why and what to do."""


class ServerBinaryError(EmbeddedServerError):
    """There is no server program that can be started, or the chosen one is too old."""


class DataFolderError(EmbeddedServerError):
    """The data folder is unusable: not made by pyasynq, of a newer version, inaccessible, or held elsewhere.

    Attributes:
        folder: the data folder.
    """

    def __init__(self, folder: Path, message: str) -> None:
        super().__init__(message)
        self.folder = folder


class ServerStartError(EmbeddedServerError):
    """The server program was started, but it ended or did not answer in time.

    Attributes:
        folder: the data folder.
        binary: the program.
        log: the last lines of the server's output.
    """

    def __init__(self, message: str, *, folder: Path, binary: Path, log: str) -> None:
        super().__init__(message)
        self.folder = folder
        self.binary = binary
        self.log = log


# Tracebacks and pickles name the module that users import from, not the file of the class.
for _error in (DataFolderError, EmbeddedServerError, ServerBinaryError, ServerStartError):
    _error.__module__ = "pyasynq.embedded"
