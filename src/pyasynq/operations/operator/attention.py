"""The operator's methods about attention: findings, snoozes, and objectives of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.operating import snoozes
from pyasynq._checks import check_name, check_text, parse_positive_seconds
from pyasynq.errors import InvalidOptionError
from pyasynq.operations.audit import note_change
from pyasynq.operations.finding import finding_id
from pyasynq.operations.permissions import Permission
from pyasynq.operations.thresholds import DEFAULT_THRESHOLDS

from ._base import OperatorBase

if TYPE_CHECKING:
    from pyasynq._broker.operating.snoozes import FindingSnooze
    from pyasynq.operations.finding import Attention
    from pyasynq.operations.thresholds import Thresholds
    from pyasynq.options import Duration


class AttentionOperator(OperatorBase):
    """The operator's methods about attention: findings and their snoozes."""

    async def attention(self, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> Attention:
        """Return the findings that need attention, the most severe first; snoozed findings are separate.

        The findings come from the last sweep (reading of all queues), which all viewers of a process share.
        Sweeps are at least two seconds apart and take at most 2 % of Redis' time. Findings about Redis are
        for users who may see Redis' reports about itself.

        Raises:
            RedisError: Redis cannot be reached.
        """
        snapshot, earlier = await self._connections.sweep.read()
        known = await self._inspector.run(snoozes.list_snoozes(self._inspector.now()))
        from pyasynq.operations.attention import find_attention  # noqa: PLC0415 - as `OperatorConnections.sweep`

        attention = find_attention(snapshot, earlier, known, thresholds)
        if self.access.may_everywhere(Permission.SETTINGS_ADMIN):
            return attention
        return attention.without("redis_danger")

    async def snooze_finding(
        self, detector: str, queue: str = "", *, subject: str = "", duration: Duration, reason: str
    ) -> FindingSnooze:
        """Snooze a finding for a time, for all users; this replaces an earlier snooze of it.

        Args:
            detector: `AttentionFinding.detector`.
            queue: `AttentionFinding.queue`; if it is empty, the user needs the permission for all queues.
            subject: `AttentionFinding.subject`.
            duration: for how long, at most 30 days.
            reason: why the finding needs no attention until then, at most 200 characters.

        Raises:
            InvalidOptionError: for an unknown detector, a blank or long reason, or a wrong duration.
        """
        from pyasynq.operations.attention import check_detector  # noqa: PLC0415 - as `OperatorConnections.sweep`

        check_detector(detector)
        check_text("subject", subject)
        check_name("reason", reason)
        seconds = parse_positive_seconds("duration", duration)
        if seconds > snoozes.LONGEST_SNOOZE:
            raise InvalidOptionError("duration", duration, "must be at most 30 days")
        if len(reason) > snoozes.LONGEST_REASON:
            raise InvalidOptionError(
                "reason", reason, f"must have at most {snoozes.LONGEST_REASON} characters"
            )
        now = self._inspector.now()
        plan = snoozes.add_snooze(
            finding_id(detector, queue, subject),
            until=now.plus(seconds),
            reason=reason,
            by=self.user.name,
            now=now,
        )
        return await self._inspector.run(plan)

    async def unsnooze_finding(self, detector: str, queue: str = "", *, subject: str = "") -> bool:
        """End the snooze of a finding; return whether there was one."""
        return await self._inspector.run(snoozes.remove_snooze(finding_id(detector, queue, subject)))

    async def set_wait_objective(self, queue: str, objective: Duration | None, *, reason: str = "") -> None:
        """Set how long the next task of a queue may be pending (service level objective); None removes it.

        A queue whose next task is pending for longer is reported as a finding. The default is the objective
        in `Thresholds`, five minutes.

        Raises:
            InvalidOptionError: for a duration that is not above 0.
        """
        seconds = None if objective is None else parse_positive_seconds("objective", objective)
        before = await self._inspector.run(snoozes.read_wait_objective(queue))
        await self._inspector.run(snoozes.set_wait_objective(queue, seconds))
        note_change({"wait_objective": before}, {"wait_objective": seconds})
