from pyasynq import Consumer, Task
from pyasynq.consumer import Attempt

attempt: Attempt
consumer: Consumer
receipt: str

def resize(payload: bytes | None) -> bytes: ...
async def write_report(task: Task) -> bytes: ...
