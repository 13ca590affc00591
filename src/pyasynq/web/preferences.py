"""Preferences of a viewer: theme, density, time zone, refresh; kept in one cookie without secrets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFERENCES_COOKIE: Final = "pyasynq-view"
THEMES: Final = ("system", "light", "dark")
DENSITIES: Final = ("comfortable", "compact")
REFRESHES: Final = ("live", "off")
KEYS: Final = ("on", "off")
_LONGEST_ZONE: Final = 64
_LONGEST_COOKIE: Final = 500


@dataclass(frozen=True, slots=True)
class Preferences:
    """Preferences of a viewer; every value is one of the choices in this module, or an existing time zone."""

    theme: str = "system"
    density: str = "comfortable"
    zone: str = "UTC"
    refresh: str = "live"
    keys: str = "on"

    @property
    def time_zone(self) -> tzinfo:
        """The zone in which times are shown."""
        return find_zone(self.zone) or UTC

    def to_cookie(self) -> str:
        """Return the cookie's value."""
        return urlencode({name: getattr(self, name) for name in _CHOICES} | {"zone": self.zone})


_CHOICES: Final = {"theme": THEMES, "density": DENSITIES, "refresh": REFRESHES, "keys": KEYS}


def read_preferences(cookie: str | None) -> Preferences:
    """Return the preferences in a cookie; invalid values become defaults."""
    if not cookie or len(cookie) > _LONGEST_COOKIE:
        return Preferences()
    return change_preferences(Preferences(), dict(parse_qsl(cookie, max_num_fields=20)))


def change_preferences(known: Preferences, changes: Mapping[str, str]) -> Preferences:
    """Return the preferences with the valid changes applied; ignore invalid ones."""
    taken = {name: changes[name] for name, choices in _CHOICES.items() if changes.get(name) in choices}
    zone = changes.get("zone", "")
    if zone and find_zone(zone) is not None:
        taken["zone"] = zone
    return replace(known, **taken)


def find_zone(name: str) -> tzinfo | None:
    """Return a time zone by its IANA name; None if there is no such zone."""
    if name == "UTC":
        return UTC
    if len(name) > _LONGEST_ZONE:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
