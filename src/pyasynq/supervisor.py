"""Supervision of several workers, and health checks for an orchestrator's probes.

`pyasynq worker --processes 4 --health-port 8080` uses this. A program of your own that starts its workers by
its own command does the same with these parts:

    def command(socket: int) -> list[str]:
        return [sys.executable, "-m", "myapp.worker", str(socket)]

    settings = SupervisorSettings(processes=4, health=HealthSettings(port=8080))
    raise SystemExit(Supervisor(command, settings).run())

and in `myapp.worker`, before anything that takes time:

    link = SupervisorLink(int(sys.argv[1]))
    server = app.server()
    link.attach(server, app.url, crash_limits={})
    raise SystemExit(server.run_forever(app))
"""

from __future__ import annotations

from pyasynq._engine.supervisor.health import Health, HealthSettings
from pyasynq._engine.supervisor.link import WORKER_VARIABLE, ExemplarRow, MetricRow, SupervisorLink
from pyasynq._engine.supervisor.reaper import leave_process_1
from pyasynq._engine.supervisor.supervisor import MetricSink, Supervisor, SupervisorSettings
from pyasynq._engine.supervisor.vitals import Vitals

__all__ = [
    "WORKER_VARIABLE",
    "ExemplarRow",
    "Health",
    "HealthSettings",
    "MetricRow",
    "MetricSink",
    "Supervisor",
    "SupervisorLink",
    "SupervisorSettings",
    "Vitals",
    "leave_process_1",
]
