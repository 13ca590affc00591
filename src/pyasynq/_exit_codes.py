"""Exit codes of the command line.

0, 1, 2 and 130 mean the same for every command. From 3 on, workers, schedulers and supervisors have codes of
their own, and so have the commands of operators.
"""

from __future__ import annotations

from typing import Final

EXIT_CLEAN: Final = 0
EXIT_START_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNFINISHED: Final = 3
"""Exit code if something did not end in time; interrupted tasks are back in their queues."""
EXIT_OVERDUE: Final = 4
"""Exit code of a worker whose slots are held by handlers that cannot be stopped."""
EXIT_GAVE_UP: Final = 5
"""Exit code of a supervisor that gave up because its workers kept dying."""
EXIT_ABORTED: Final = 130
"""Exit code after Ctrl-C: the code that a shell reports for a program ended by SIGINT."""

EXIT_FAILED: Final = 1
EXIT_NO_MATCH: Final = 3
"""Exit code if nothing matches and the user asked to fail in that case (`--fail-empty`)."""
EXIT_REFUSED: Final = 4
"""Exit code if the user did not confirm the change, or lacks the permission."""
EXIT_UNREACHABLE: Final = 5
"""Exit code if Redis cannot be reached."""
EXIT_PARTLY: Final = 6
"""Exit code if only a part of the requested changes was made."""
