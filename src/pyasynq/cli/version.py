"""The command `pyasynq version`."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from typing import Final

import click

from pyasynq.cli.nouns import OperatorCommand

_LIBRARIES: Final = ("pyasynq", "redis", "protobuf", "click")


@click.command(cls=OperatorCommand, examples=("pyasynq version", "pyasynq version --json"))
@click.option("--json", "as_json", is_flag=True, help="Print an object.")
def version(*, as_json: bool) -> None:
    """Print the versions of pyasynq, Python and the libraries it uses."""
    versions = {name: metadata.version(name) for name in _LIBRARIES}
    versions["python"] = platform.python_version()
    if as_json:
        click.echo(json.dumps(versions, indent=2))
        return
    rest = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "pyasynq")
    click.echo(f"pyasynq {versions['pyasynq']}\n{rest}")
