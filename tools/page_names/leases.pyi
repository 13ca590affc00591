from pyasynq.gateway.leases import WorkKey
from starlette.requests import Request

async def authenticate(request: Request) -> WorkKey | None: ...
