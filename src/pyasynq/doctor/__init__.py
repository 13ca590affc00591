"""Doctor for live data: finds damage in Redis, explains it, and repairs it while workers run."""

from ._doctor import Doctor
from ._findings import Finding, FindingKind, Severity

__all__ = ["Doctor", "Finding", "FindingKind", "Severity"]
