"""An online shop on pyasynq and FastAPI: everything that an application uses, in one place.

Start a worker:     pyasynq worker shop:app
Start the website:  uvicorn shop.website:site
Both read PYASYNQ_REDIS_URL, and SHOP_DATABASE, the file of the orders.

`application` has the app and its settings, `tasks` the handlers, `website` the views, `tests` their tests.
"""

from shop import tasks
from shop.application import app

__all__ = ["app", "tasks"]
