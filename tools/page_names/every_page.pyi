"""Names that the blocks of many pages use: what the reader has made by then."""

from pyasynq import App, Client, Inspector, Server
from pyasynq.operations import Operator

app: App
client: Client
inspector: Inspector
operator: Operator
server: Server
payload: bytes
task_id: str
url: str
user_id: int
