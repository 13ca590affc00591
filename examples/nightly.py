"""Periodic tasks: a report every morning, a sweep every ten minutes.

Run worker and scheduler in one:   pyasynq worker nightly:app --with-scheduler
or each of its own:                pyasynq worker nightly:app
                                   pyasynq scheduler nightly:app
"""

from __future__ import annotations

from pyasynq import App, SchedulerConfig, context

app = App(scheduler_config=SchedulerConfig(location="Europe/Berlin"))


@app.cron("*/10 * * * *", unique=600)
@app.task("sweep")
def sweep(older_than: int = 3600) -> None:
    """Never two at a time: while one is unfinished, a tick enqueues none."""
    context().log.info("sweeping what is older than %d s", older_than)


@app.task("report", queue="low", retention=86_400)
async def report(team: str) -> str:
    """Scheduled below, once for each team."""
    return f"all is well with {team}"


for team in ("north", "south"):
    # If no scheduler runs at seven, the report is made as soon as one does.
    app.schedule("0 7 * * mon-fri", report.task(team), misfire="once")
