"""The group of the commands `pyasynq task`."""

from __future__ import annotations

from typing import Final

import click

from pyasynq.cli.nouns import NounGroup

EXAMPLE_ID: Final = "7d1e5a4c-4b0e-4f0a-9d9e-1a2b3c4d5e6f"


@click.group(
    cls=NounGroup,
    aliases={
        "ls": "list",
        "rm": "delete",
        "remove": "delete",
        "show": "inspect",
        "view": "inspect",
    },
)
def task() -> None:
    """List tasks; enqueue, run, cancel, archive, and delete them."""
