"""Error replies of Redis: their codes, and the exceptions they become."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import redis.exceptions as redis_errors

from pyasynq.errors import (
    RedisAuthenticationError,
    RedisOutOfMemoryError,
    RedisPermissionError,
    RedisReplyError,
    RedisValueTooLargeError,
)

if TYPE_CHECKING:
    from pyasynq.errors import RedisError

WAITED_OUT: Final = frozenset(
    {"LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS", "BUSY", "READONLY"},
)
"""Error codes for temporary refusals: the call did not run and is resent until the timeout."""

_REDIRECTIONS: Final = frozenset({"MOVED", "ASK"})
_AUTHENTICATION: Final = frozenset({"NOAUTH", "WRONGPASS"})

# redis-py removes the code from the message of errors that have a class of their own.
_CODES: Final[dict[type[Exception], str]] = {
    redis_errors.NoScriptError: "NOSCRIPT",
    redis_errors.BusyLoadingError: "LOADING",
    redis_errors.ReadOnlyError: "READONLY",
    redis_errors.OutOfMemoryError: "OOM",
    redis_errors.NoPermissionError: "NOPERM",
    redis_errors.AuthenticationError: "WRONGPASS",
    redis_errors.AuthenticationWrongNumberOfArgsError: "WRONGPASS",
    redis_errors.TryAgainError: "TRYAGAIN",
    redis_errors.ClusterDownError: "CLUSTERDOWN",
    redis_errors.MasterDownError: "MASTERDOWN",
    redis_errors.ClusterCrossSlotError: "CROSSSLOT",
    redis_errors.MovedError: "MOVED",
    redis_errors.AskError: "ASK",
    redis_errors.ExecAbortError: "EXECABORT",
}
_CODE: Final = re.compile(r"-?([A-Z][A-Z0-9_]+)(?: |$)")
# Redis 6.2 wraps the error of a command inside a script in another error, whose code is ERR.
_INSIDE_SCRIPT: Final = re.compile(r"@user_script: ?\d+: -([A-Z]+) ")
_LINE: Final = re.compile(r"@user_script: ?(\d+)")
_CALLED: Final = re.compile(
    rb"(?:redis[._])?call\((?:[^'()]* and )?'((?:MEMORY', ')?[A-Z]+)'(?: or '([A-Z]+)')?"
)
_CHECKED: Final = re.compile(rb"pcall\('([A-Z]+)'()")
# Redis quotes the arguments of unknown commands, which may be passwords or payloads.
_QUOTED_ARGUMENTS: Final = re.compile(r",? with args beginning with:.*", re.DOTALL)
_SCRIPT_DENIED: Final = ("ACL failure in script", "The user executing the script can't")


# Errors for values over proto-max-bulk-len; Redis and Valkey close the connection after them.
_TOO_LARGE: Final = re.compile(
    r"Protocol error: (?:invalid (?:multi)?bulk length|too big m?bulk count)"
    r"|exceeds maximum allowed size|max [a-z ]*size exceeded"
)

_RIGHTS: Final = (
    "a user for pyasynq has "
    "~asynq:* resetchannels &asynq:* +@all -@dangerous +info +client|setname +client|tracking"
)


class ReplyError(Exception):
    """An error reply: its first word, such as `NOSCRIPT` or `ERR`, and the text after it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        self.message = message


def reply_error(error: Exception) -> ReplyError:
    """Convert redis-py's error back to the server's code and text, without quoted arguments."""
    # The error's traceback refers to a frame, and that to the error. Only the garbage collector would free
    # this cycle, and the connection in it.
    error.__traceback__ = None
    read = read_reply_error(str(error))
    code = _CODES.get(type(error))
    return read if code is None or read.code == "NOPERM" else ReplyError(code, read.message)


def read_reply_error(text: str) -> ReplyError:
    """Parse an error reply without its leading minus; leave quoted arguments out."""
    text = _QUOTED_ARGUMENTS.sub("", text)
    if any(words in text for words in _SCRIPT_DENIED):
        return ReplyError("NOPERM", text)
    if inside := _INSIDE_SCRIPT.search(text):
        return ReplyError(inside[1], text)
    if found := _CODE.match(text):
        return ReplyError(found[1], text[found.end() :])
    return ReplyError("ERR", text)


def cannot_read_flags(error: ReplyError) -> bool:
    """Return whether the server mistook a script's flags line (`#!lua`) for Lua, as Redis 6.2 does.

    The script did not run.
    """
    return "Error compiling script" in error.message and "near '#'" in error.message


def denied_commands(error: ReplyError, script: bytes) -> list[str]:
    """Return the commands that an ACL refusal may mean: those in the script line that its text names.

    Redis does not say which command it has denied.
    """
    lines = _LINE.findall(error.message)
    if error.code != "NOPERM" or not lines:
        return []
    # A script that undoes its writes raises the error again: the last line number is that of the command.
    found = _CALLED.findall(script.splitlines()[int(lines[-1]) - 1])
    # Redis 7.0 reports the line that raises the error again: then a command called by `pcall` was denied.
    found = found or _CHECKED.findall(script)
    return [*dict.fromkeys(_acl_name(name.decode()) for names in found for name in names if name)]


def _acl_name(called: str) -> str:
    """Return a command's name as in ACL rules: in lower case, with a `|` before a subcommand.

    `called` is what a script has between the outer quotes of its call: "MEMORY', 'USAGE" for `memory|usage`.
    """
    return called.replace("', '", "|").lower()


def translate(error: ReplyError, subject: str, address: str = "") -> RedisError:
    """Return pyasynq's exception for an error reply.

    Args:
        error: the reply.
        subject: the command or script that was refused.
        address: address of Redis, without a password.
    """
    if error.code in _AUTHENTICATION:
        where = f"Redis at {address}" if address else "Redis"
        return RedisAuthenticationError(f"{where} refused the user name or password: {error.message}")
    if error.code == "NOPERM":
        return RedisPermissionError(f"{subject} was refused: {error.message}; {_RIGHTS}")
    if error.code == "OOM":
        return RedisOutOfMemoryError(f"{subject} was refused: {error.message}")
    if _TOO_LARGE.search(error.message):
        return RedisValueTooLargeError(
            f"{subject} was refused because of its size: {error.message}; "
            "send less, or raise the limit of the server (proto-max-bulk-len in redis.conf)"
        )
    if error.code in _REDIRECTIONS:
        return RedisReplyError(
            f"{subject} was refused: {error}; this is a cluster node: its URL begins with redis-cluster://"
        )
    return RedisReplyError(f"{subject} was refused: {error}")
