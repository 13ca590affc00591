"""Any sequence of operations leaves the same Redis, whether Asynq or pyasynq performs it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tests.interop.intended import LOUD, QUIET
from tests.interop.lockstep import Lockstep
from tests.interop.our_side import OurSide
from tests.interop.sequences import check_needed, patient, run_sequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.database import Database
    from tests.interop.go_side import GoSide


@patient
def test_a_sequence_leaves_the_same_redis(
    go_side: GoSide,
    databases: tuple[Database, Database],
    record_property: Callable[[str, object], None],
) -> None:
    """Key by key, except what the list of intended differences has; and both sides answer the same."""
    with closing(OurSide(databases[1].url)) as our_side:
        lockstep = Lockstep(go_side, databases[0], our_side, databases[1])
        run_sequences(lockstep.run, record_property)
    check_needed((*QUIET, *LOUD), lockstep.seen)
