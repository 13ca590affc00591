# Generated from src/pyasynq/operations/operator/doctor.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about damage in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq.errors import InvalidOptionError, nearest

from ._base import OperatorBase

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyasynq.doctor import FindingKind
    from pyasynq.operations.doctoring import Examination
    from pyasynq.options import Duration


class DoctorOperator(OperatorBase):
    """Examines Redis and repairs damage with `pyasynq.doctor.Doctor`, through separate connections."""

    def examine(
        self,
        queues: Sequence[str] | None = None,
        *,
        pause: Duration = 2.0,
        archive_max_size: int | None = None,
        unowned_locks: bool = False,
    ) -> Examination:
        """Look for damage, and change nothing; each finding describes the effect of `repair`.

        Args:
            queues: queues to examine. None means all queues; if the user sees all queues, also Redis and the
                servers are examined.
            pause: seconds between the two checks that confirm each finding.
            archive_max_size: maximum number of archived tasks in a queue, as in `ServerConfig`.
            unowned_locks: also find locks whose task is gone or has another lock.

        Raises:
            QueueNotFoundError: for a queue that does not exist.
        """
        return self._examine(
            queues, pause=pause, archive_max_size=archive_max_size, unowned_locks=unowned_locks
        )

    def repair(
        self,
        queues: Sequence[str] | None = None,
        kinds: Collection[FindingKind | str] = (),
        *,
        pause: Duration = 2.0,
        archive_max_size: int | None = None,
        unowned_locks: bool = False,
        reason: str = "",
    ) -> Examination:
        """Examine again, and repair the damage found; return the repairable findings and what was repaired.

        Args:
            queues: queues to repair. None means all queues; if the user may repair all queues, also Redis and
                the servers are repaired.
            kinds: kinds of findings to repair; empty for all kinds.
            pause: as for `examine`.
            archive_max_size: as for `examine`; larger archives are trimmed only if it is given.
            unowned_locks: as for `examine`.
            reason: why, for the audit.

        Raises:
            InvalidOptionError: for an unknown kind.
            QueueNotFoundError: for a queue that does not exist.
        """
        from pyasynq.doctor import FindingKind  # noqa: PLC0415 - most users of an operator need no doctor

        known = set(FindingKind)
        for kind in kinds:
            if kind not in known:
                raise InvalidOptionError("kinds", kind, f"must be kinds of findings{nearest(kind, known)}")
        return self._examine(
            queues, kinds, pause=pause, archive_max_size=archive_max_size, unowned_locks=unowned_locks
        )

    def _examine(
        self,
        queues: Sequence[str] | None,
        repairs: Collection[str] | None = None,
        **settings: Duration | int | bool | None,
    ) -> Examination:
        from pyasynq.operations.doctoring import Examination, examine_blocking  # noqa: PLC0415 - most calls need none

        if queues is not None and not queues:
            return Examination(())  # the user sees none of them, and empty `queues` would mean all
        given = {
            **settings,
            "queues": queues or (),
            "timeout": self._connections.timeout,
            "clock": self._connections.clock,
        }
        return examine_blocking(self._connections.target, given, repairs)
