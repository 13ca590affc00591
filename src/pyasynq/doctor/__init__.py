"""Doctor: consistency check (fsck) of live task data in Redis, with explanations and online repair."""

from ._doctor import Doctor
from ._findings import Finding, FindingKind, Severity

__all__ = ["Doctor", "Finding", "FindingKind", "Severity"]
