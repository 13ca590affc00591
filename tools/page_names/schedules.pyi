class _Row:
    cron: str
    payload: bytes

async def load_rows() -> list[_Row]: ...
