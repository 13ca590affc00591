"""The commands `pyasynq server`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from pyasynq._visible_text import visible
from pyasynq.cli.actions import for_each, reason_option
from pyasynq.cli.nouns import NounGroup
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.records import SERVERS, describe_server
from pyasynq.info import RequestStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.cli.operator_command import Session
    from pyasynq.cli.records import Record


_WAIT: Final = 6.0
"""Seconds to wait for the answer of a server, which reads requests with its heartbeat every 5 s."""
_ANSWERS: Final = {
    RequestStatus.REQUESTED: "has not answered yet",
    RequestStatus.OBEYED: "takes no more tasks",
    RequestStatus.REFUSED: "is a consumer, whose program decides when it stops",
    RequestStatus.ENDED: "has ended",
    RequestStatus.NOT_UNDERSTOOD: "is one in Go, which reads no requests: send its process TSTP or TERM",
}


@click.group(cls=NounGroup, aliases={"ls": "list"})
def server_group() -> None:
    """Look at the servers that run tasks; quiet and stop them."""


@server_group.command(
    "list",
    examples=(
        "pyasynq server ls",
        "pyasynq server ls --watch",
    ),
)
@operator_command
async def list_servers_command(session: Session) -> None:
    """List the running servers, those in Go included."""

    async def gather() -> list[Record]:
        servers = await session.operator.servers()
        return [describe_server(info) for info in sorted(servers, key=lambda one: (one.host, one.pid))]

    await session.show(SERVERS, gather)


@server_group.command("quiet", examples=("pyasynq server quiet 3f0c1d52-…",))
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@reason_option
@operator_command
async def quiet(session: Session, ids: Sequence[str], reason: str) -> int:
    """Let servers take no more tasks; what runs already runs on. The ids are those of  server ls -o wide."""

    async def act(server_id: str) -> None:
        result = await session.operator.quiet_server(server_id, wait=_WAIT, reason=reason)
        click.echo(f"Server {visible(server_id)} {_ANSWERS[result.status]}.", err=True)

    return await for_each(ids, act)


@server_group.command("stop", examples=('pyasynq server stop 3f0c1d52-… --reason "new release"',))
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@reason_option
@operator_command
async def stop(session: Session, ids: Sequence[str], reason: str) -> int:
    """Shut servers down, each with its whole worker; unfinished tasks are put back."""

    async def act(server_id: str) -> None:
        result = await session.operator.stop_server(server_id, wait=_WAIT, reason=reason)
        click.echo(f"Server {visible(server_id)} {_ANSWERS[result.status]}.", err=True)

    return await for_each(ids, act)
