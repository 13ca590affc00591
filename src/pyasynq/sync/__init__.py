"""The blocking twins of the asyncio API."""

from pyasynq.sync.client import Client
from pyasynq.sync.inspector import Inspector

__all__ = ["Client", "Inspector"]
