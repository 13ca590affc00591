"""The commands `pyasynq key`: API keys of programs, with which they sign in at the task service."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from pyasynq._face_records.api_keys import API_KEYS, describe_api_key
from pyasynq._visible_text import visible
from pyasynq.cli.actions import DURATION, reason_option
from pyasynq.cli.nouns import NounGroup
from pyasynq.cli.operator_command import operator_command

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.operations import IssuedApiKey


@click.group(cls=NounGroup, aliases={"ls": "list", "create": "make", "rm": "delete", "revoke": "delete"})
def key() -> None:
    """Make API keys of programs for the task service; list, rotate, and delete them."""


@key.command("list", examples=("pyasynq key ls",))
@operator_command
async def list_keys(session: Session) -> None:
    """List all keys, expired ones included; their secrets are stored nowhere."""

    async def gather() -> list[Record]:
        now = datetime.now(UTC)
        return [describe_api_key(one, now) for one in await session.operator.api_keys()]

    await session.show(API_KEYS, gather)


@key.command(
    "make",
    examples=(
        "pyasynq key make billing --scope tasks:write --scope tasks:read --queue 'billing:*'",
        "pyasynq key make resizer --scope work --queue resize --expires 90d",
        "pyasynq key make shop --scope tasks:write --rate 50/s+10",
    ),
)
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    help="One of tasks:write, tasks:read, work, types:write, metrics:read, admin; repeat it for more.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    default=("*",),
    show_default=True,
    help="Pattern of the queues that it may use; repeat it for more.",
)
@click.option("--expires", type=DURATION, help="Time after which it ends; never unless given.")
@click.option("--rate", help="Requests that it may send to all instances, as in 50/s, 100/m, 50/s+10.")
@reason_option
@operator_command
async def make_key(
    session: Session,
    name: str,
    scopes: tuple[str, ...],
    queues: tuple[str, ...],
    expires: float | None,
    rate: str | None,
    reason: str,
) -> None:
    """Make an API key, and print it. It cannot be shown again."""
    issued = await session.operator.make_api_key(
        name, scopes, queues, expires_in=expires, rate=rate, reason=reason
    )
    _tell(session, issued, f"Made key {issued.key.id} of {visible(name)}.")


@key.command("rotate", examples=("pyasynq key rotate 3f9c2a71b0de --overlap 7d",))
@click.argument("key_id", metavar="ID")
@click.option(
    "--overlap",
    type=DURATION,
    default="1d",
    show_default=True,
    help="Time in which the former secret stays valid; 0s ends it at once.",
)
@reason_option
@operator_command
async def rotate_key(session: Session, key_id: str, overlap: float, reason: str) -> None:
    """Give an API key a new secret, and print the key. It cannot be shown again."""
    issued = await session.operator.rotate_api_key(key_id, overlap=overlap, reason=reason)
    _tell(session, issued, f"Key {issued.key.id} has a new secret.")


@key.command("delete", examples=("pyasynq key rm 3f9c2a71b0de --reason 'was in a log'",))
@click.argument("key_id", metavar="ID")
@reason_option
@operator_command
async def delete_key(session: Session, key_id: str, reason: str) -> None:
    """Delete an API key; the task service refuses it within a second."""
    await session.operator.delete_api_key(key_id, reason=reason)
    click.echo(f"Deleted key {visible(key_id)}.", err=True)


def _tell(session: Session, issued: IssuedApiKey, what: str) -> None:
    """Print a new API key on stdout: alone, so that a shell can capture it; for programs, as JSON."""
    if session.printer.is_for_people:
        click.echo(f"{what} Keep it now: it is shown this once.", err=True)
        click.echo(issued.text)
    else:
        click.echo(json.dumps({"id": issued.key.id, "key": issued.text}))
