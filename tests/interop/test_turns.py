"""Asynq and pyasynq take turns on one database, and each continues what the other began."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tests.interop.mixed import ASYNQ, PERMITTED, PYASYNQ, Mixed
from tests.interop.our_side import OurSide
from tests.interop.sequences import check_needed, patient, run_sequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.database import Database
    from tests.interop.go_side import GoSide


@patient
def test_any_turns_leave_a_sound_redis(
    go_side: GoSide,
    databases: tuple[Database, Database],
    record_property: Callable[[str, object], None],
) -> None:
    """Nothing is lost, and the invariants hold after each step, except what Asynq is known to leave."""
    with closing(OurSide(databases[0].url)) as our_side:
        mixed = Mixed({ASYNQ: go_side, PYASYNQ: our_side}, databases[0])
        run_sequences(mixed.run, record_property)
    check_needed(PERMITTED, mixed.seen)
