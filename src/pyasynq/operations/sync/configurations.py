# Generated from src/pyasynq/operations/operator/configurations.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about configurations of task types."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pyasynq._broker.operating.configurations import (
    MAX_CONFIGURATION_BYTES,
    MAX_CONFIGURATIONS,
    MAX_VERSIONS,
    note_version,
    read_configurations,
    read_newest_version,
    read_versions,
    write_configuration,
)
from pyasynq._checks import check_new_name, check_whole
from pyasynq.errors import ConfigurationChangedError, InvalidOptionError, RedisError
from pyasynq.operations.audit import note_change

from .search import SearchOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.operations.type_configurations import TypeConfiguration, TypeVersion


class ConfigurationOperator(SearchOperator):
    """Reads and changes the configurations of task types, which the task service uses."""

    def type_configurations(self) -> list[TypeConfiguration]:
        """Return the configurations of the types whose queues the user sees, by name.

        Values that are not JSON objects are left out.
        """
        found = self._inspector.run(read_configurations())
        read = [_decode(name, *found[name]) for name in sorted(found) if self._access.sees(name)]
        return [one for one in read if one is not None]

    def type_configurations_version(self) -> int:
        """Return the highest version of all configurations, including deleted ones; each change raises it."""
        return self._inspector.run(read_newest_version())

    def type_configuration(self, queue: str) -> TypeConfiguration | None:
        """Return the configuration of the task type with the name of this queue; None if there is none."""
        found = self._inspector.run(read_configurations([queue]))
        return _decode(queue, *found[queue]) if queue in found else None

    def type_configuration_versions(self, queue: str) -> list[TypeVersion]:
        """Return the newest 20 versions of a task type's configuration, with author and time, newest first.

        The versions are kept for 400 days after the last change, even if the type was deleted. The current
        version is always included; its author and time are unknown if the record of the change was lost.
        """
        from pyasynq.operations.type_configurations import TypeVersion, decode_version  # noqa: PLC0415 - most calls need none

        kept = self._inspector.run(read_versions(queue))
        found = {number: version for number, data in kept if (version := decode_version(number, data))}
        current = self.type_configuration(queue)
        if current is not None:
            found.setdefault(
                current.version, TypeVersion(current.version, None, "", "", dict(current.content))
            )
        return [found[number] for number in sorted(found, reverse=True)][:MAX_VERSIONS]

    def set_type_configuration(
        self, queue: str, content: Mapping[str, Any], *, expected: int | None = None, reason: str = ""
    ) -> TypeConfiguration:
        """Store the configuration of a task type, which has the name of its queue.

        Equal content changes nothing, and keeps the version.

        Args:
            queue: name of the type and of its queue.
            content: the configuration; the task service checks it.
            expected: version that the configuration must have for a change (compare-and-set); 0 if it must
                not exist, None for any version.
            reason: why, for the audit.

        Raises:
            ConfigurationChangedError: the configuration has another version.
            InvalidOptionError: for content that is not JSON or too large, and above 2,000 types.
        """
        from pyasynq.operations.type_configurations import TypeConfiguration, encode_content  # noqa: PLC0415 - most calls need none

        check_new_name("queue", queue)
        data = encode_content(content, MAX_CONFIGURATION_BYTES)
        before = self._note(queue, data)
        version = self._write(queue, data, expected)
        if version != before:
            self._keep(queue, version, dict(content), reason)
        return TypeConfiguration(queue, version, dict(content))

    def delete_type_configuration(
        self, queue: str, *, expected: int | None = None, reason: str = ""
    ) -> None:
        """Delete the configuration of a task type; its tasks and the limits of its queue stay.

        Raises:
            ConfigurationChangedError: the configuration has another version, or does not exist.
        """
        self._note(queue, b"")
        version = self._write(queue, b"", expected)
        self._keep(queue, version, None, reason)

    def _note(self, queue: str, after: bytes) -> int:
        """Record the stored and the new configuration for the audit; return the stored version."""
        found = self._inspector.run(read_configurations([queue]))
        version, before = found.get(queue, (0, b""))
        note_change(before.decode("utf-8", "replace"), after.decode())
        return version

    def _keep(self, queue: str, version: int, content: dict[str, Any] | None, reason: str) -> None:
        """Record the author of a version. The change is stored already, so an outage here is not an error."""
        from pyasynq.operations.type_configurations import TypeVersion, encode_version  # noqa: PLC0415 - most calls need none

        now = self._inspector.now().to_datetime()
        record = encode_version(TypeVersion(version, now, self.user.name, reason, content))
        with contextlib.suppress(RedisError):
            self._inspector.run(note_version(queue, version, record))

    def _write(self, queue: str, data: bytes, expected: int | None) -> int:
        if expected is not None:
            check_whole("expected", expected, 0)
        plan = write_configuration(queue, data, expected, self._inspector.redis_now())
        outcome, version = self._inspector.run(plan)
        if outcome == "other":
            raise ConfigurationChangedError(queue, version)
        if outcome == "full":
            remedy = f"there are {MAX_CONFIGURATIONS:,} task types, as many as can be"
            raise InvalidOptionError("queue", queue, remedy)
        return version


def _decode(name: str, version: int, data: bytes) -> TypeConfiguration | None:
    from pyasynq.operations.type_configurations import TypeConfiguration, decode_content  # noqa: PLC0415 - most calls need none

    content = decode_content(data)
    return None if content is None else TypeConfiguration(name, version, content)
