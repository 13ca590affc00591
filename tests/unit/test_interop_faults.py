"""The faults that the differential test has to find can be planted."""

from __future__ import annotations

import pytest

from tests.interop.faults import FAULTS, PACKAGE, SCRIPTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.meaning)
def test_the_line_of_a_fault_is_in_its_script_once(fault: Fault) -> None:
    """A change of a script shows here, and not only after a run of minutes."""
    source = (PACKAGE / SCRIPTS / f"{fault.script}.lua").read_text("utf-8")
    assert 1 == source.count(fault.right)
