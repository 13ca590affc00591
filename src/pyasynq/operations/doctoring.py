"""Runs of the doctor (consistency check of Redis) for an operator: findings, skipped queues, repairs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from pyasynq._redis.clients import RedisSource
    from pyasynq.doctor import Finding


@dataclass(frozen=True, slots=True)
class Examination:
    """Findings of the doctor, and the queues that could not be examined."""

    findings: tuple[Finding, ...]
    skipped: tuple[str, ...] = ()
    """Queues and other parts that could not be examined, each with the reason."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of findings and number of repairs, for the audit."""
        repaired = sum(len(finding.repaired) for finding in self.findings)
        return {"findings": len(self.findings), "repaired": repaired}


async def examine_async(
    target: RedisSource, settings: Mapping[str, Any], repairs: Collection[str] | None = None
) -> Examination:
    """Examine Redis; with `repairs`, repair the findings of these kinds, and return only these findings.

    Args:
        target: where Redis is.
        settings: arguments of `Doctor`.
        repairs: kinds of findings to repair; empty for all kinds, None for no repair.
    """
    from pyasynq.doctor import Doctor  # noqa: PLC0415 - most users of an operator need no doctor

    async with Doctor(target, **settings) as doctor:
        findings = await doctor.examine()
        if repairs is not None:
            wanted = [one for one in findings if one.is_repairable and (not repairs or one.kind in repairs)]
            findings = await doctor.repair(wanted)
        return Examination(tuple(findings), tuple(doctor.skipped))


def examine_blocking(
    target: RedisSource, settings: Mapping[str, Any], repairs: Collection[str] | None = None
) -> Examination:
    """Run `examine_async` in a new event loop; not callable from a running one."""
    return asyncio.run(examine_async(target, settings, repairs))
