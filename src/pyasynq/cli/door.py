"""The commands `pyasynq door`: doors of the task service for other protocols."""

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
    """Look at the doors of the task service, such as that for Gearman."""


@door.command("list", examples=("pyasynq door ls", "pyasynq door ls --watch"))
@operator_command
async def list_doors_command(session: Session) -> None:
    """List the doors that were open within 10 minutes, with their functions."""

    async def gather() -> list[Record]:
        return [describe_door(one) for one in await session.operator.service_doors()]

    await session.show(DOORS, gather)
