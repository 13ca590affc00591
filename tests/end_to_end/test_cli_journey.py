"""The recorded example of the command line."""

from __future__ import annotations

import pytest

from tests.cli_journey import PAGE, make_page


@pytest.mark.long
def test_the_recorded_commands_still_answer_so() -> None:
    """Otherwise the page shows what no user sees: record it again by `python -m tests.cli_journey`."""
    assert PAGE.read_text("utf-8") == make_page()
