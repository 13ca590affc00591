# Generated from src/pyasynq/operations/operator/commands.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about the commands of hosted task types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.operating.instance_reports import COMMAND_REPORTS, read_reports

from .search import SearchOperator

if TYPE_CHECKING:
    from pyasynq.operations.commands import HostedCommand


class CommandOperator(SearchOperator):
    """Lists the commands that the instances of the task service report."""

    def commands(self) -> list[HostedCommand]:
        """Return the commands that run, or ended within 10 minutes, in queues that the user sees."""
        from pyasynq.operations.commands import decode_command, list_commands  # noqa: PLC0415 - most calls need none

        now = self._inspector.now()
        found = self._inspector.run(read_reports(COMMAND_REPORTS, now))
        read = [(at, decode_command(data)) for at, data in found.values()]
        return list_commands([(at, one) for at, one in read if one is not None], now.seconds)
