"""The app of the chaos runs with a tick every second, each of which must be made up for."""

from __future__ import annotations

from tests.chaos.app import app, work

app.schedule("@every 1s", work.task(), misfire="all")
