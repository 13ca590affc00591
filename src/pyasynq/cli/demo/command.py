"""The command `pyasynq demo`."""

from __future__ import annotations

from pathlib import Path

import click

_READABLE_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("folder", type=_READABLE_FOLDER, required=False)
@click.option("--no-kill", is_flag=True, help="Let both workers live.")
@click.option("--json", "as_json", is_flag=True, help="Print nothing but the summary, as JSON.")
@click.option("--keep", is_flag=True, help="Leave the dashboard and its data open at the end, until Ctrl-C.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8080,
    show_default=True,
    help="Where the dashboard is; another port if this one is taken.",
)
def demo(folder: Path | None, *, no_kill: bool, as_json: bool, keep: bool, port: int) -> None:
    """Watch two workers run tasks, and recover after one is killed.

    They read every Python source file of FOLDER, or of Python's own library.
    Nothing needs to be installed or running: the demo starts a real Valkey server for itself. It kills one of
    the workers on the way, proves at the end that no task was lost, and leaves nothing behind.
    While it runs, its dashboard is open, if the extra `web` is installed.
    """
    from pyasynq.cli.demo.start import show_demo  # noqa: PLC0415 - --help does without

    raise SystemExit(show_demo(folder, kill=not no_kill, as_json=as_json, keep=keep, port=port))
