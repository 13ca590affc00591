"""The commands `pyasynq group`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyasynq._face_records.queues import GROUPS, describe_group
from pyasynq.cli.completion import complete_queues
from pyasynq.cli.nouns import NounGroup
from pyasynq.cli.operator_command import operator_command

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session


@click.group(cls=NounGroup, aliases={"ls": "list"})
def group() -> None:
    """List aggregation groups: tasks that wait to be combined into one task."""


@group.command(
    "list",
    examples=("pyasynq group ls -q default",),
)
@click.option(
    "-q",
    "--queue",
    metavar="NAME",
    shell_complete=complete_queues,
    required=True,
    help="The queue of the groups.",
)
@operator_command
async def list_groups_command(session: Session, queue: str) -> None:
    """List the groups of a queue with their sizes."""

    async def gather() -> list[Record]:
        return [describe_group(queue, info) for info in await session.operator.groups(queue)]

    await session.show(GROUPS, gather)
