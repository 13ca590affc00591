"""The command line in this process, on one Redis, with its output kept apart by stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from pyasynq.cli import main

if TYPE_CHECKING:
    from click.testing import Result


class Cli:
    """Runs commands in this process, on one Redis; no terminal can be asked."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, *arguments: str, typed: str | None = None) -> Result:
        """Run a command and return its result."""
        return CliRunner().invoke(main, arguments, input=typed, env={"PYASYNQ_REDIS_URL": self.url})

    def json(self, *arguments: str) -> Any:
        """Return what a command prints as JSON."""
        result = self.run(*arguments, "-o", "json")
        assert 0 == result.exit_code, result.output
        return json.loads(result.stdout)
