"""The recorded output of the commands that look."""

from __future__ import annotations

import pytest

from tests.cli_screens import PAGE, make_page


@pytest.mark.long
def test_the_recorded_commands_still_show_this() -> None:
    """Otherwise the page shows what no user sees: record it again by `python -m tests.cli_screens`."""
    assert PAGE.read_text("utf-8") == make_page()
