from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from pyasynq import PlainTask

class Pool: ...

calls: list[Mapping[str, Any]]
ids: list[int]
resize: PlainTask[[str], bytes]

def create_pool() -> AbstractAsyncContextManager[Pool]: ...
def tenant() -> str: ...
