"""The frame of every page: badge, navigation, live state, footer."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from pyasynq.web import formats
from pyasynq.web.assets import load_assets

if TYPE_CHECKING:
    from pyasynq.web.notice import Notice
    from pyasynq.web.page import Page, PageRequest

VERSION: Final = importlib.metadata.version("pyasynq")
_MODULES: Final = ("main.js",)
_TITLE_SIGN: Final = " – "  # noqa: RUF001 - between the parts of a title
_SHORTEST_REFRESH: Final = 2
_LONGEST_REFRESH: Final = 3_600


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """A link of the navigation."""

    name: str
    label: str
    href: str
    is_current: bool
    note: str = ""
    """Count or word that is shown next to the label."""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class NavigationGroup:
    """Links under one heading."""

    heading: str
    items: tuple[NavigationItem, ...]


@dataclass(frozen=True, slots=True)
class PageFrame:
    """View model of the frame of a page."""

    title: str
    brand: str
    root: str
    style: str
    scripts: tuple[str, ...]
    env_name: str
    env_color: str
    theme: str
    density: str
    keys: bool
    live: str
    """Address of the live stream; empty for a page without live updates."""
    refresh: str
    """Seconds after which the page reloads itself in browsers without JavaScript."""
    as_of: str
    as_of_time: Markup
    made: str
    version: str
    help: str
    nav: tuple[NavigationGroup, ...] = ()
    notices: tuple[Notice, ...] = ()
    search: str = ""
    settings: str = ""
    switch: str = ""
    targets: tuple[str, ...] = ()
    target: str = ""
    zone: str = ""
    user: str = ""
    role: str = ""
    redis: str = ""


_NAVIGATION: Final = (
    (
        "",
        (
            ("overview", "Overview", ()),
            ("queues", "Queues", ("queues",)),
            ("tasks", "Tasks", ("tasks",)),
            ("errors", "Errors", ("errors",)),
            ("types", "Types", ("types",)),
            ("servers", "Servers", ("servers",)),
            ("schedules", "Schedules", ("schedules",)),
            ("events", "Events", ("events",)),
        ),
    ),
    (
        "Task service",
        (
            ("task-types", "Task types", ("task-types",)),
            ("deliveries", "Deliveries", ("deliveries",)),
            ("commands", "Commands", ("commands",)),
            ("workers", "Remote workers", ("workers",)),
            ("doors", "Doors", ("doors",)),
            ("keys", "API keys", ("keys",)),
        ),
    ),
    (
        "System",
        (
            ("operations", "Operations", ("operations",)),
            ("audit", "Audit", ("audit",)),
            ("doctor", "Doctor", ("doctor",)),
            ("redis", "Redis", ("redis",)),
            ("settings", "Settings", ("settings",)),
        ),
    ),
)

_VERBS_OF_ITEMS: Final = {"keys": "api_keys"}
"""Navigation entries that are shown only to users who may call a verb: the verb by page."""


def build_frame(
    ask: PageRequest, page: Page, made_seconds: float, notices: tuple[Notice, ...] = ()
) -> PageFrame:
    """Return the frame of a page for a user."""
    links, settings, preferences = ask.links, ask.settings, ask.preferences
    as_of = formats.clock(ask.now, preferences.time_zone)
    version = load_assets().version
    redis_name = ask.target.label
    return PageFrame(
        title=_TITLE_SIGN.join(part for part in (page.title, redis_name, settings.title) if part),
        brand=settings.title,
        root=links.to(),
        style=links.asset("dashboard.css", version),
        scripts=tuple(links.asset(name, version) for name in _MODULES),
        env_name=settings.environment.name if settings.environment else "",
        env_color=settings.environment.color if settings.environment else "none",
        theme="" if preferences.theme == "system" else preferences.theme,
        density="" if preferences.density == "comfortable" else preferences.density,
        keys=preferences.keys == "on",
        live=_live_address(ask) if page.is_live else "",
        refresh=_refresh_seconds(ask) if page.is_live else "",
        as_of=as_of,
        as_of_time=Markup('<time datetime="{}" title="{}">{}</time>').format(
            formats.machine(ask.now),
            formats.exact(ask.now, preferences.time_zone),
            f"{as_of} {ask.now.astimezone(preferences.time_zone).tzname() or ''}".rstrip(),
        ),
        made=formats.span(made_seconds),
        version=VERSION,
        help=links.to("help"),
        nav=_navigation(ask, page.section) if ask.user.name else (),
        notices=notices,
        search=links.to("tasks"),
        settings=links.to("settings"),
        switch=links.to("switch"),
        targets=settings.names if len(settings.names) > 1 else (),
        target=redis_name,
        zone=preferences.zone,
        user=ask.user.name,
        role=ask.user.role or "custom role",
        redis=ask.target.summary,
    )


def _navigation(ask: PageRequest, section: str) -> tuple[NavigationGroup, ...]:
    counts = ask.target.counts(ask.user)
    return tuple(
        NavigationGroup(
            heading,
            tuple(
                NavigationItem(name, label, ask.links.to(*path), name == section, *counts.get(name, ("", "")))
                for name, label, path in items
                if name not in _VERBS_OF_ITEMS or ask.may(_VERBS_OF_ITEMS[name])
            ),
        )
        for heading, items in _NAVIGATION
    )


def _live_address(ask: PageRequest) -> str:
    if ask.preferences.refresh == "off" or "refresh" in ask.query:
        return ""
    return ask.links.to(
        "live", page=ask.links.path, **{f"p.{name}": value for name, value in ask.query.items()}
    )


def _refresh_seconds(ask: PageRequest) -> str:
    text = ask.query.get("refresh", "")
    if not text.isdecimal() or len(text) > 5:
        return ""
    return str(min(max(int(text), _SHORTEST_REFRESH), _LONGEST_REFRESH))
