# What readers have made before they come to a block of any page.

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
