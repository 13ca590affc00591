"""App of the load that Prometheus scrapes: tasks that succeed, fail, wait and are put off."""

from __future__ import annotations

import asyncio

from pyasynq import App, Snooze

app = App()


@app.task("mail:send", queue="mail")
async def send(number: int) -> None:
    """Take a few milliseconds; fail now and then."""
    await asyncio.sleep(0.005)
    if number % 20 == 0:
        raise ValueError("the address is wrong")


@app.task("report:make", queue="reports", max_retry=0)
def make(number: int) -> object:
    """Take longer, in a thread."""
    if number % 7 == 0:
        raise ValueError("there are no figures")
    return Snooze(1) if number % 5 == 0 else None


@app.cron("@every 5s")
@app.task("clean", queue="reports")
async def clean() -> None:
    """Run periodically."""
