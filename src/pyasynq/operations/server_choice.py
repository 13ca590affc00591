"""The choice of servers for a request to several: by their ids, or by a version. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq.errors import InvalidOptionError, ServerNotFoundError

from .operation import PRODUCTION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyasynq.info import ServerInfo

TYPED_SERVERS: Final = 10
"""Number of servers above which the user must type the number to confirm; in production always."""


def choose_servers(
    servers: Iterable[ServerInfo],
    server_ids: Sequence[str] | None = None,
    *,
    version: str = "",
    engine_version: str = "",
) -> list[ServerInfo]:
    """Return the live servers with these ids, or the live servers that run a version.

    The version is that of the application or of pyasynq; if both are given, a server must run both.

    Raises:
        InvalidOptionError: neither ids nor a version is given, or `server_ids` is a single string.
        ServerNotFoundError: no live server has one of the ids, or none runs the version.
    """
    if isinstance(server_ids, str | bytes):
        raise InvalidOptionError("server_ids", None, "must be several ids; put a single one into a list")
    if not server_ids and not version and not engine_version:
        raise InvalidOptionError("version", version, "name a version, or servers by their ids")
    wanted = dict.fromkeys(server_ids or ())
    found = [
        one
        for one in servers
        if (not wanted or one.id in wanted)
        and version in {"", one.version}
        and engine_version in {"", one.engine_version}
    ]
    missing = [*(wanted.keys() - {one.id for one in found})] if wanted else []
    if missing or not found:
        raise ServerNotFoundError(min(missing, default=version or engine_version))
    return sorted(found, key=lambda one: (one.host, one.pid, one.id))


def needs_server_number(total: int, environment: str) -> bool:
    """Return whether the number of servers must be typed to quiet or stop them."""
    return total > TYPED_SERVERS or environment == PRODUCTION


def check_server_number(total: int, environment: str, confirm: int | None) -> None:
    """Check that the user has confirmed the number of servers of a request, if that is required.

    Raises:
        InvalidOptionError: the number is required and missing, or is wrong.
    """
    if confirm == total or (confirm is None and not needs_server_number(total, environment)):
        return
    raise InvalidOptionError(
        "confirm", confirm, f"must be the number of servers; {counted(total, 'lives', 'live')}"
    )
