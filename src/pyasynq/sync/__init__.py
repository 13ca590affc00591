"""The blocking twins of the asyncio API, for scripts, threads and web frameworks without an event loop."""

from pyasynq.sync.client import CallNext, Client, ClientMiddleware
from pyasynq.sync.inspector import Inspector
from pyasynq.sync.rate import Semaphore

__all__ = ["CallNext", "Client", "ClientMiddleware", "Inspector", "Semaphore"]
