from starlette.requests import Request

from pyasynq.gateway.leases import WorkKey

async def authenticate(request: Request) -> WorkKey | None: ...
