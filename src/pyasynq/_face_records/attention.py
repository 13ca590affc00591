"""Face records of findings that need attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._face_records.fields import Field, Kind, View

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.operations import AttentionFinding


SEVERITY_COLORS: Final = {5: "red", 4: "red", 3: "yellow"}


FINDINGS: Final = View(
    "attention",
    "id",
    (
        Field("id", Kind.TEXT, "Eight digits that stand for the finding; `snooze` takes them.", "FINDING"),
        Field(
            "severity",
            Kind.COUNT,
            "From 1, can wait, to 5: tasks are being lost, or nothing runs.",
            "SEVERITY",
            color=SEVERITY_COLORS.get,
        ),
        Field("detector", Kind.TEXT, "What found it.", "DETECTOR"),
        Field(
            "queue", Kind.TEXT, "Queue that it is about; empty for servers and Redis.", "QUEUE", shrinks=True
        ),
        Field("since", Kind.TIME, "When it began, if that is known.", "SINCE", is_optional=True),
        Field("sentence", Kind.TEXT, "What is wrong, with the numbers.", "FINDS", shrinks=True),
        Field("action", Kind.TEXT, "What cures it.", "ACTION", is_wide=True),
        Field("command", Kind.TEXT, "Command that does it; empty if there is none.", "COMMAND", is_wide=True),
        Field("query", Kind.TEXT, "Query that finds its tasks; empty for none.", "QUERY", is_wide=True),
        Field("subject", Kind.TEXT, "Task type, server or replica; empty for the queue as a whole."),
        Field("snoozed_until", Kind.TIME, "When its snooze ends; null if it has none.", is_optional=True),
        Field("snoozed_by", Kind.TEXT, "Name of the user who snoozed it.", is_optional=True),
        Field("snooze_reason", Kind.TEXT, "Why it was snoozed.", is_optional=True),
    ),
    "Nothing needs attention.",
)


def describe_finding(finding: AttentionFinding) -> Record:
    """Return the face record of a finding."""
    snooze = finding.snooze
    return {
        "id": finding.short_id,
        "severity": finding.severity,
        "detector": finding.detector,
        "queue": finding.queue,
        "since": finding.since,
        "sentence": finding.sentence,
        "action": finding.action.label,
        "command": finding.action.command,
        "query": finding.query,
        "subject": finding.subject,
        "snoozed_until": snooze.until if snooze else None,
        "snoozed_by": snooze.by if snooze else None,
        "snooze_reason": snooze.reason if snooze else None,
    }
