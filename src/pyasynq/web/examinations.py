"""Doctor examinations started from a dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasynq._visible_text import visible

if TYPE_CHECKING:
    import asyncio
    from datetime import datetime

    from pyasynq.operations.doctoring import Examination


@dataclass(slots=True)
class ExaminationRun:
    """One doctor examination, running or ended."""

    began: datetime
    task: asyncio.Task[Examination]

    @property
    def error(self) -> str:
        """Error of the examination, as a sentence; empty for none."""
        if not self.task.done():
            return ""
        if self.task.cancelled():
            return "The examination was cancelled."
        problem = self.task.exception()
        return visible(str(problem)) if problem is not None else ""
