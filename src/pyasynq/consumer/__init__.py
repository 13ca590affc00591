"""Consumer: pull-based access to tasks for programs with their own main loop, under the server's rules.

async with Consumer("redis://localhost:6379/0", ConsumerConfig(queues={"reports": 1})) as consumer:
async with consumer.take("reports", limit=10) as attempts:
for attempt in attempts:
await attempt.done(await write_report(attempt.task))
"""

from pyasynq.consumer._attempt import Attempt, Attempts
from pyasynq.consumer._config import ConsumerConfig
from pyasynq.consumer._consumer import Consumer

__all__ = ["Attempt", "Attempts", "Consumer", "ConsumerConfig"]
