"""Settings page: preferences and account of the viewer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from zoneinfo import available_timezones

from starlette.responses import Response

from pyasynq.web.locations import to_segment
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.preferences import (
    DENSITIES,
    KEYS,
    PREFERENCES_COOKIE,
    REFRESHES,
    THEMES,
    Preferences,
    change_preferences,
    find_zone,
)
from pyasynq.web.respond import redirect

if TYPE_CHECKING:
    from pyasynq.web.page import PageRequest

_YEAR = 365 * 86_400


@dataclass(frozen=True, slots=True)
class PreferenceChoice:
    """A preference with its possible values."""

    name: str
    label: str
    value: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Granted:
    """A permission that the viewer has."""

    name: str
    queues: str


@dataclass(frozen=True, slots=True)
class SettingsView:
    """View model of the settings page."""

    choices: tuple[PreferenceChoice, ...]
    zone: str
    zones: tuple[str, ...]
    user: str
    role: str
    login: str
    permissions: tuple[Granted, ...]
    is_read_only: bool
    can_sign_out: bool
    secret_note: str


async def settings_page(ask: PageRequest) -> Page:
    """Return the page `/settings`."""
    chosen = ask.preferences
    view = SettingsView(
        choices=(
            PreferenceChoice(
                "theme", "Theme", chosen.theme, tuple((one, one.capitalize()) for one in THEMES)
            ),
            PreferenceChoice(
                "density", "Rows", chosen.density, tuple((one, one.capitalize()) for one in DENSITIES)
            ),
            PreferenceChoice(
                "refresh",
                "Updates",
                chosen.refresh,
                tuple(zip(REFRESHES, ("As they happen", "Only when a page is loaded"), strict=True)),
            ),
            PreferenceChoice(
                "keys", "Keys of one letter", chosen.keys, tuple(zip(KEYS, ("On", "Off"), strict=True))
            ),
        ),
        zone=chosen.zone,
        zones=_zones(),
        user=ask.user.name,
        role=ask.user.role or "a role of its own",
        login=ask.user.login or "not known",
        permissions=tuple(
            Granted(str(permission), ", ".join(patterns))
            for permission, patterns in sorted(ask.user.grants.items())
        ),
        is_read_only=ask.settings.read_only,
        can_sign_out=ask.session is not None,
        secret_note="Sessions end when this process does: PYASYNQ_SECRET is not set."
        if ask.settings.secret.is_generated and ask.session
        else "",
    )
    return Page("settings.html", "Settings", "settings", view)


async def change_settings(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Store the viewer's preferences in a cookie."""
    chosen: Preferences = change_preferences(ask.preferences, fields)
    zone = fields.get("zone", "")
    is_known = not zone or find_zone(zone) is not None
    notice = (
        Notice("good", "Kept in this browser.")
        if is_known
        else Notice("bad", "There is no time zone of that name.")
    )
    response = redirect(ask, ask.links.to("settings"), notice)
    response.set_cookie(
        PREFERENCES_COOKIE,
        chosen.to_cookie(),
        max_age=_YEAR,
        path="/",
        secure=ask.request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return response


async def switch_target(ask: PageRequest) -> Response:
    """Redirect to another Redis of this dashboard."""
    name = ask.query.get("to", "")
    up = f"../{to_segment(name)}/" if name in ask.settings.names and name else "./"
    return Response(status_code=303, headers={"Location": up})


@cache
def _zones() -> tuple[str, ...]:
    names = [
        name
        for name in available_timezones()
        if "/" in name and not name.startswith(("Etc/", "posix", "right"))
    ]
    return ("UTC", *sorted(names))
