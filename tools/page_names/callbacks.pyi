from pyasynq import CoroutineTask

charge: CoroutineTask[[int], None]
order_id: int

async def tell_the_user(id: str, outcome: str) -> None: ...
