"""The fuzzers, a few values each: `make fuzz` gives them minutes, and looks for new lines with Atheris."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.fuzzer import load

FUZZERS = load()


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", FUZZERS)
def test_no_input_is_answered_with_an_error_that_is_not_ours(name: str) -> None:
    """Damage in Redis and nonsense from users are errors that say so, or are left out."""
    one = FUZZERS[name]
    few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    few(given(one.values)(one.try_one))()
