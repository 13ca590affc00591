from pyasynq.sdk import RunningWorker

API_KEY: str

async def start() -> RunningWorker: ...
