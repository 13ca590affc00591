# Generated from src/pyasynq/operations/operator/api_keys.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about API keys of programs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pyasynq._broker.operating import api_keys as plans
from pyasynq._checks import parse_positive_seconds, parse_seconds
from pyasynq.errors import ApiKeyNotFoundError, InvalidOptionError

from .search import SearchOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.operations.api_keys import ApiKey, IssuedApiKey
    from pyasynq.options import Duration

_OVERLAP_SECONDS: Final = 86_400.0
"""Seconds for which the former secret stays valid by default: a day for programs to switch."""
_LONGEST_SECONDS: Final = 100 * 366 * 86_400.0


class ApiKeyOperator(SearchOperator):
    """Makes, rotates and deletes the API keys with which programs authenticate at the task service."""

    def api_keys(self) -> list[ApiKey]:
        """Return all keys by name, expired ones included. Values that are not keys are left out."""
        from pyasynq.operations.api_keys import decode_api_key  # noqa: PLC0415 - most calls need none

        found = self._inspector.run(plans.read_api_keys())
        keys = [decode_api_key(key_id, data) for key_id, data in found.items()]
        return sorted((key for key in keys if key is not None), key=lambda key: (key.name, key.id))

    def api_key(self, key_id: str) -> ApiKey | None:
        """Return a key; None if there is none with this id."""
        from pyasynq.operations.api_keys import decode_api_key  # noqa: PLC0415 - most calls need none

        record = self._inspector.run(plans.read_api_key(key_id))
        return None if record is None else decode_api_key(key_id, record)

    def make_api_key(
        self,
        name: str,
        scopes: Sequence[str],
        patterns: Sequence[str] = "*",
        *,
        expires_in: Duration | None = None,
        rate: str | None = None,
        reason: str = "",
    ) -> IssuedApiKey:
        """Make an API key; only this call returns its text, which is stored nowhere.

        Args:
            name: name of the program or its owner.
            scopes: names of its scopes, see `pyasynq.operations.SCOPES`.
            patterns: patterns of the queues that it may use.
            expires_in: time after which the key expires; None for never.
            rate: rate limit of its requests over all instances, such as `50/s+10`; None for no limit.
            reason: why, for the audit.

        Raises:
            InvalidOptionError: for an invalid value, and above 1,000 keys.
        """
        from pyasynq.operations.api_keys import make_api_key  # noqa: PLC0415 - most calls need none

        issued = make_api_key(
            name,
            scopes,
            patterns,
            by=self.user.name,
            expires_in=None if expires_in is None else _parse_duration("expires_in", expires_in),
            now=self._inspector.now().to_datetime(),
            rate=rate,
        )
        if self._store_key(issued.key, b"") != plans.STORED:
            remedy = f"there are {plans.MAX_API_KEYS:,} keys, as many as can be; delete one"
            raise InvalidOptionError("name", name, remedy)
        return issued

    def rotate_api_key(
        self, key_id: str, *, overlap: Duration = _OVERLAP_SECONDS, reason: str = ""
    ) -> IssuedApiKey:
        """Give a key a new secret, and return it; the former one stays valid for the overlap, older ones end.

        Args:
            key_id: id of the key, which stays.
            overlap: time for which the former secret stays valid, so that programs can switch; 0 for no time.
            reason: why, for the audit.

        Raises:
            ApiKeyNotFoundError: there is no such key.
        """
        from pyasynq.operations.api_keys import decode_api_key, issue_secret  # noqa: PLC0415 - most calls need none

        seconds = parse_seconds("overlap", overlap)
        length = _parse_duration("overlap", seconds) if seconds > 0 else None
        while True:
            record = self._inspector.run(plans.read_api_key(key_id))
            key = None if record is None else decode_api_key(key_id, record)
            if key is None or record is None:
                raise ApiKeyNotFoundError(key_id)
            issued = issue_secret(key, overlap=length, now=self._inspector.now().to_datetime())
            # A failed compare-and-set means that another rotation came in between; the loop rotates its
            # result again.
            if self._store_key(issued.key, record) == plans.STORED:
                return issued

    def delete_api_key(self, key_id: str, *, reason: str = "") -> None:
        """Delete a key: the task service refuses it from then on, within a second.

        Raises:
            ApiKeyNotFoundError: there is no such key.
        """
        if not self._inspector.run(plans.remove_api_key(key_id)):
            raise ApiKeyNotFoundError(key_id)

    def _store_key(self, key: ApiKey, expected: bytes) -> int:
        from pyasynq.operations.api_keys import encode_api_key  # noqa: PLC0415 - most calls need none

        return self._inspector.run(plans.write_api_key(key.id, expected, encode_api_key(key)))


def _parse_duration(option: str, value: Duration) -> timedelta:
    seconds = parse_positive_seconds(option, value)
    if seconds > _LONGEST_SECONDS:
        raise InvalidOptionError(option, value, "must be at most 100 years")
    return timedelta(seconds=seconds)
