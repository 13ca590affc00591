"""The payload: a handler's arguments as compact JSON, and its result the same way.

All work on annotations happens once, when a handler is declared; what runs for each task is one JSON
decode and a look at the types. Nothing here knows Redis, tasks or servers.
"""

from pyasynq._payload.arguments import ArgumentsCodec
from pyasynq._payload.results import ResultCodec

__all__ = ["ArgumentsCodec", "ResultCodec"]
