"""The command line `pyasynq`."""

from pyasynq.cli.commands import main

__all__ = ["main"]
