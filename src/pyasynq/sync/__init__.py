"""The blocking twins of the asyncio API."""

from pyasynq.sync.client import Client

__all__ = ["Client"]
