"""Configurations of task types in Redis: a version and JSON for each type, changed by compare-and-set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import time_arguments
from pyasynq._broker.scripts import TYPE_CONFIGURE
from pyasynq._broker.stored import decode_name, parse_number
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import CONFIGURATIONS_KEY, configuration_versions_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant

MAX_CONFIGURATIONS: Final = 2_000
"""Maximum number of task types that have a configuration."""
MAX_CONFIGURATION_BYTES: Final = 80_000
"""Maximum size of a configuration, in bytes of JSON: the largest schema, and the other fields."""
NEWEST: Final = ""
"""Hash field of the highest version, by which readers notice a change; no type has an empty name."""
_AT_ONCE: Final = 50
MAX_VERSIONS: Final = 20
"""Number of versions of a configuration that are kept, the newest ones."""
_VERSION_SECONDS: Final = 400 * 86_400
"""Seconds after the last change for which the versions are kept, also versions of a deleted type."""


class ConfigurationChange(NamedTuple):
    """Result of changing the configuration of a task type (compare-and-set).

    Attributes:
        outcome: `stored`; `other` if the type has another version; `full` if the store is full.
        version: the new version if it was stored, else the present version of the type; 0 for none.
    """

    outcome: str
    version: int


def write_configuration(
    name: str, content: bytes, expected: int | None, now: Instant | None
) -> Plan[ConfigurationChange]:
    """Store a type's configuration if the expected version is stored (compare-and-set); return the outcome.

    `expected` 0 means that none is stored; None accepts any version. Empty content deletes the configuration.
    """
    head = (*time_arguments(now), name, "" if expected is None else expected)
    args = (*head, MAX_CONFIGURATIONS, content)
    outcome, version = yield ScriptCall(TYPE_CONFIGURE, (CONFIGURATIONS_KEY,), args, Replay.SAFE)
    return ConfigurationChange(outcome.decode(), version)


def note_version(name: str, version: int, record: bytes) -> Plan[None]:
    """Add a version, which is stored already, to the history of its type; idempotent."""
    key = configuration_versions_key(name)
    yield CommandCall(("ZADD", key, version, record), key, Replay.SAFE)
    yield CommandCall(("ZREMRANGEBYRANK", key, 0, -MAX_VERSIONS - 1), key, Replay.SAFE)
    yield CommandCall(("EXPIRE", key, _VERSION_SECONDS), key, Replay.SAFE)


def read_versions(name: str) -> Plan[list[tuple[int, bytes]]]:
    """Return the kept versions of a configuration with their records, the newest first."""
    key = configuration_versions_key(name)
    command = ("ZREVRANGE", key, 0, MAX_VERSIONS - 1, "WITHSCORES")
    reply: Sequence[bytes] = yield CommandCall(command, key, Replay.SAFE)
    return [(int(float(score)), record) for record, score in zip(reply[::2], reply[1::2], strict=True)]


def read_newest_version() -> Plan[int]:
    """Return the highest version that any change has made; 0 before the first."""
    command = ("HGET", CONFIGURATIONS_KEY, NEWEST)
    return parse_number((yield CommandCall(command, CONFIGURATIONS_KEY, Replay.SAFE)))


def read_configurations(names: Sequence[str] | None = None) -> Plan[dict[str, tuple[int, bytes]]]:
    """Return the version and the JSON of each named type that has a configuration; None reads all types.

    It reads 50 types with each command, because schemas are large.
    """
    if names is None:
        found = yield CommandCall(("HKEYS", CONFIGURATIONS_KEY), CONFIGURATIONS_KEY, Replay.SAFE)
        asked: Sequence[bytes | str] = [name for name in found if name]
    else:
        asked = names
    read: dict[str, tuple[int, bytes]] = {}
    for first in range(0, len(asked), _AT_ONCE):
        part = asked[first : first + _AT_ONCE]
        command = ("HMGET", CONFIGURATIONS_KEY, *part)
        values: Sequence[bytes | None] = yield CommandCall(command, CONFIGURATIONS_KEY, Replay.SAFE)
        for name, value in zip(part, values, strict=True):
            version, _, content = (value or b"").partition(b" ")
            if content and version.isdigit():
                text = name if isinstance(name, str) else decode_name(name)
                read[text] = parse_number(version), content
    return read
