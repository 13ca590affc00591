"""`pyasynq service` with other intervals of the engine, and Gearman leases of that length.

    CHAOS_ENGINE='{"lease": 6}' python -m tests.chaos.quick_service service FILE

A short run cannot wait for leases of 30 s to lapse.
"""

from __future__ import annotations

import dataclasses
import json
import os

from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS
from pyasynq.cli.commands import main
from pyasynq.consumer import _consumer
from pyasynq.gateway.doors.gearman import worker_side
from tests.chaos.settings import ENGINE_VARIABLE

if __name__ == "__main__":
    engine = dataclasses.replace(DEFAULT_ENGINE_SETTINGS, **json.loads(os.environ.get(ENGINE_VARIABLE, "{}")))
    vars(_consumer)["DEFAULT_ENGINE_SETTINGS"] = engine
    vars(worker_side).update(_LEASE_SECONDS=float(engine.lease), _RENEW_SECONDS=engine.lease / 3)
    main(prog_name="pyasynq")
