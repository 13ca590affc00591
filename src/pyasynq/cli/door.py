"""The commands `pyasynq door`: protocol gateways (doors) of the task service, such as for Gearman."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyasynq._face_records.service_reports import DOORS, describe_door
from pyasynq.cli.nouns import NounGroup
from pyasynq.cli.operator_command import operator_command

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session


@click.group(cls=NounGroup, aliases={"ls": "list"})
def door() -> None:
    """List the protocol gateways (doors) of the task service, such as the one for Gearman."""


@door.command("list", examples=("pyasynq door ls", "pyasynq door ls --watch"))
@operator_command
async def list_doors_command(session: Session) -> None:
    """List the gateways that were open in the last 10 minutes, with the functions that they accept."""

    async def gather() -> list[Record]:
        return [describe_door(one) for one in await session.operator.service_doors()]

    await session.show(DOORS, gather)
