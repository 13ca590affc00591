"""Every kind of damage that the doctor knows, made as stock servers, old tools or accidents make it."""

from tests.contract.damages import fields, keys, tasks
from tests.contract.damages._made import DAMAGES, LOCK, OVER, PAST, Damage
from tests.contract.damages.keys import put_server

__all__ = ["DAMAGES", "LOCK", "OVER", "PAST", "Damage", "fields", "keys", "put_server", "tasks"]
