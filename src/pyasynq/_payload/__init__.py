"""Encoding of payloads and results: a handler's arguments and its return value, as compact JSON.

All work on annotations happens once, when a handler is declared; each task takes only one JSON decode and a
check of the types. Nothing here knows Redis, tasks or servers.
"""

from pyasynq._payload.arguments import ArgumentsCodec
from pyasynq._payload.results import ResultCodec

__all__ = ["ArgumentsCodec", "ResultCodec"]
