"""Addresses of pages, relative to the page that holds them."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest

from pyasynq.web.locations import Links, to_segment

BASE = "https://ops.example/tasks"


@pytest.mark.parametrize("name", ["mail", "mail:v2", "javascript:alert(1)", "//host", ".", "a/b"])
def test_a_page_links_to_itself_whatever_its_name(name: str) -> None:
    """A colon does not begin a scheme, and slashes do not begin a host."""
    path = f"/queues/{to_segment(name)}"
    here = Links(path, {"state": "retry"}).here(state="archived")
    assert f"{BASE}{path}?state=archived" == urljoin(BASE + path, here)


def test_the_overview_links_to_itself() -> None:
    """Its path is the root."""
    assert f"{BASE}/?range=day" == urljoin(f"{BASE}/", Links("/", {}).here(range="day"))
