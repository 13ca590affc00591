"""Face records of API keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._face_records.fields import Field, Kind, View

if TYPE_CHECKING:
    from datetime import datetime

    from pyasynq._face_records.fields import Record
    from pyasynq.operations import ApiKey


API_KEYS: Final = View(
    "key-list",
    "id",
    (
        Field("id", Kind.TEXT, "Id of the key, the part behind pq_.", "ID"),
        Field("name", Kind.TEXT, "Name that says whose key it is.", "NAME", shrinks=True),
        Field("scopes", Kind.NAMES, "What it may do.", "SCOPES"),
        Field("queues", Kind.NAMES, "Patterns of the queues that it may use.", "QUEUES", shrinks=True),
        Field("rate", Kind.TEXT, "Requests that it may send; null for any number.", "RATE", is_optional=True),
        Field("expires", Kind.TIME, "When it ends; null for never.", "EXPIRES", is_optional=True),
        Field("expired", Kind.FLAG, "Whether its time is over.", "EXPIRED"),
        Field("secrets", Kind.COUNT, "Valid secrets: two during a rotation.", "SECRETS", is_wide=True),
        Field("made", Kind.TIME, "When it was made.", "MADE", is_wide=True),
        Field("made_by", Kind.TEXT, "The user who made it.", "BY", is_wide=True),
    ),
    "No API keys; make one with  pyasynq key make NAME --scope tasks:write",
)


def describe_api_key(key: ApiKey, now: datetime) -> Record:
    """Return the face record of an API key."""
    ends = (one.expires_at for one in key.secrets)
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "queues": list(key.patterns),
        "rate": None if key.rate is None else key.rate.text,
        "expires": key.expires_at,
        "expired": key.is_expired(now),
        "secrets": sum(end is None or now < end for end in ends),
        "made": key.made_at,
        "made_by": key.made_by,
    }
