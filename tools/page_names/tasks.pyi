from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from pyasynq import PlainTask, Task

CallNext: TypeAlias = Callable[[Task], Awaitable[bytes | str | None]]

class Pool:
    async def load(self, year: int) -> None: ...

calls: list[Mapping[str, Any]]
ids: list[int]
resize: PlainTask[[str], bytes]

def create_pool() -> AbstractAsyncContextManager[Pool]: ...
def tenant() -> str: ...
