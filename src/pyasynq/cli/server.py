"""The commands `pyasynq server`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from pyasynq._exit_codes import EXIT_CLEAN
from pyasynq._face_records.fleet import SERVERS, describe_server
from pyasynq._face_records.lease_workers import LEASE_WORKERS, describe_lease_worker
from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.cli.actions import confirm_change, for_each, reason_option, yes_option
from pyasynq.cli.nouns import NounGroup
from pyasynq.cli.operator_command import operator_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.info import RequestStatus


_WAIT: Final = 6.0
"""Seconds to wait for the answer of a server, which reads requests with its heartbeat every 5 s."""
_version = click.option(
    "--version", metavar="TEXT", default="", help="All servers of this version of the application."
)
_engine_version = click.option(
    "--engine-version", metavar="TEXT", default="", help="All servers of this version of pyasynq."
)


@click.group(cls=NounGroup, aliases={"ls": "list"})
def server_group() -> None:
    """List the servers that run tasks; quiet and stop them."""


@server_group.command(
    "list",
    examples=(
        "pyasynq server ls",
        "pyasynq server ls --watch",
        "pyasynq server ls --version 2026.11.1",
    ),
)
@_version
@_engine_version
@operator_command
async def list_servers_command(session: Session, version: str, engine_version: str) -> None:
    """List the running servers, those in Go included."""

    async def gather() -> list[Record]:
        servers = [
            one
            for one in await session.operator.servers(payloads=False)
            if version in {"", one.version} and engine_version in {"", one.engine_version}
        ]
        return [describe_server(info) for info in sorted(servers, key=lambda one: (one.host, one.pid))]

    await session.show(SERVERS, gather)


@server_group.command("remote", examples=("pyasynq server remote", "pyasynq server remote --watch"))
@operator_command
async def list_lease_workers(session: Session) -> None:
    """List remote workers: programs in any language that lease tasks from the task service."""

    async def gather() -> list[Record]:
        return [describe_lease_worker(worker) for worker in await session.operator.lease_workers()]

    await session.show(LEASE_WORKERS, gather)


_names = click.argument("names", metavar="HOST:PID|ID...", nargs=-1)


async def find_server_id(session: Session, name: str) -> str:
    """Return the id of the server named `HOST:PID`; any other name is returned as it is, as an id.

    Raises:
        click.ClickException: if several servers run in that process.
    """
    # Servers of one process have the same name, as do containers with equal host names.
    named = [
        info.id
        for info in await session.operator.servers(payloads=False)
        if f"{info.host}:{info.pid}" == name
    ]
    if len(named) > 1:
        ids = " ".join(map(visible, sorted(named)))
        raise click.ClickException(f"{visible(name)} names {len(named)} servers; give an id: {ids}")
    return named[0] if named else name


@server_group.command(
    "quiet", examples=("pyasynq server quiet worker-1:3900", "pyasynq server quiet --version 2026.11.1")
)
@_names
@_version
@_engine_version
@yes_option
@reason_option
@operator_command
async def quiet(
    session: Session, names: Sequence[str], version: str, engine_version: str, *, yes: bool, reason: str
) -> int:
    """Quiet servers: they take no more tasks, and running tasks continue.

    Name a server by HOST:PID or by its id; find both with  pyasynq server ls -o wide.
    With a version instead, all servers of the version are chosen, and you confirm their number.
    """
    if version or engine_version:
        return await _ask_version(session, "Quiet", names, (version, engine_version), yes=yes, reason=reason)

    async def act(name: str) -> None:
        server_id = await find_server_id(session, name)
        result = await session.operator.quiet_server(server_id, wait=_WAIT, reason=reason)
        _tell_answer(name, result.status)

    return await for_each(_require_names(names), act)


@server_group.command(
    "stop",
    examples=(
        'pyasynq server stop worker-1:3900 --reason "new release"',
        'pyasynq server stop --version 2026.11.1 --reason "it leaks"',
    ),
)
@_names
@_version
@_engine_version
@yes_option
@reason_option
@operator_command
async def stop(
    session: Session, names: Sequence[str], version: str, engine_version: str, *, yes: bool, reason: str
) -> int:
    """Shut down servers with their worker processes; unfinished tasks go back to their queues.

    Name a server by HOST:PID or by its id; find both with  pyasynq server ls -o wide.
    With a version instead, all servers of the version are chosen, and you confirm their number.
    """
    if version or engine_version:
        return await _ask_version(session, "Stop", names, (version, engine_version), yes=yes, reason=reason)

    async def act(name: str) -> None:
        server_id = await find_server_id(session, name)
        result = await session.operator.stop_server(server_id, wait=_WAIT, reason=reason)
        _tell_answer(name, result.status)

    return await for_each(_require_names(names), act)


def _tell_answer(name: str, status: RequestStatus) -> None:
    from pyasynq.info import RequestStatus  # noqa: PLC0415 - help needs no answers

    sentence = {
        RequestStatus.REQUESTED: "has not answered yet",
        RequestStatus.OBEYED: "takes no more tasks",
        RequestStatus.REFUSED: "is a consumer, whose program decides when it stops",
        RequestStatus.ENDED: "has ended",
        RequestStatus.NOT_UNDERSTOOD: "is one in Go, which reads no requests: send its process TSTP or TERM",
    }[status]
    click.echo(f"Server {visible(name)} {sentence}.", err=True)


def _require_names(names: Sequence[str]) -> Sequence[str]:
    if not names:
        raise click.UsageError("Name a server as HOST:PID or by its id, or all of one --version.")
    return names


async def _ask_version(
    session: Session, word: str, names: Sequence[str], versions: tuple[str, str], *, yes: bool, reason: str
) -> int:
    from pyasynq.operations import choose_servers  # noqa: PLC0415 - help needs no servers

    if names:
        raise click.UsageError("Name either servers or a version.")
    version, engine_version = versions
    chosen = choose_servers(
        await session.operator.servers(payloads=False), version=version, engine_version=engine_version
    )
    running = sum(len(one.active_workers) for one in chosen)
    told = " and ".join(
        filter(
            None,
            (
                version and f"version {visible(version)}",
                engine_version and f"pyasynq {visible(engine_version)}",
            ),
        )
    )
    what = f"{word} {counted(len(chosen), 'server')} of {told}, running {counted(running, 'task')},"
    confirm_change(session, what, number=len(chosen), yes=yes)
    request = session.operator.stop_servers if word == "Stop" else session.operator.quiet_servers
    results = await request(
        version=version, engine_version=engine_version, confirm=len(chosen), wait=_WAIT, reason=reason
    )
    places = {one.id: f"{one.host}:{one.pid}" for one in chosen}
    for result in results:
        name = places.get(result.server_id, result.server_id)
        _tell_answer(name, result.status)
    return EXIT_CLEAN
