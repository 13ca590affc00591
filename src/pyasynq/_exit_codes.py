"""Exit codes of workers, schedulers and supervisors."""

from __future__ import annotations

from typing import Final

EXIT_CLEAN: Final = 0
EXIT_START_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNFINISHED: Final = 3
"""Something did not end in time; tasks that were running are back in their queues."""
EXIT_OVERDUE: Final = 4
"""Handlers that cannot be stopped hold the slots of the worker."""
EXIT_GAVE_UP: Final = 5
"""A supervisor does not start its workers again."""
EXIT_ABORTED: Final = 130
"""What a shell reports for a program that INT has ended."""
