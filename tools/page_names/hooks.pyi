from prometheus_client import Counter

class _Chat:
    async def post(self, text: str) -> None: ...

class _Cache:
    async def load(self) -> None: ...

archived_total: Counter
cache: _Cache
chat: _Chat
