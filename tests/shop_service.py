"""The task service of the shop: configured types, and keys of programs, for the tests of the dashboard."""

from __future__ import annotations

from typing import Any, Final

from pyasynq.operations import User
from pyasynq.operations.sync import Operator

_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "order_id": {"type": "integer", "minimum": 1},
        "carrier": {"enum": ["north-post", "south-express"]},
        "weight_g": {"type": "integer", "maximum": 31_500},
    },
    "required": ["order_id", "carrier"],
    "additionalProperties": False,
}
TYPES: Final[dict[str, dict[str, Any]]] = {
    "shipping-labels": {
        "max_run": 40,
        "rate": "50/s+10",
        "timeout": 600.0,
        "max_retry": 5,
        "retry": [5.0, 60.0, 600.0],
        "retention": 86_400.0,
        "schema": _SCHEMA,
        "managed": "api",
    },
    "payments": {"ordered": True, "timeout": 30.0, "managed": "api"},
    "exports": {"max_run": 2, "timeout": 7_200.0, "managed": "api"},
    "emails": {"rate": "100/m", "managed": "file"},
    "images": {"max_run": 8, "managed": "file"},
    "billing_reconciliation_with_a_name_that_is_longer_than_any_column_should_have_to_bear": {
        "managed": "file"
    },
}
"""Fields of the configuration of each type. No server takes tasks of `exports`."""


def configure_service(url: str) -> None:
    """Store the configurations, as the service and an administrator do."""
    with Operator(url, User.with_role("mira", "admin")) as admin:
        for name, content in TYPES.items():
            admin.set_type_configuration(
                name, {"name": name, "kind": "worker", **content}, reason="the service's file"
            )
        admin.make_api_key(
            "billing", ["tasks:write", "tasks:read"], ["payments", "billing*"], expires_in=5 * 86_400
        )
        admin.make_api_key("label printer of the packing station", ["work"], ["shipping-labels"])
        shop = admin.make_api_key("shop", ["tasks:write", "types:write"], expires_in=90 * 86_400)
        admin.rotate_api_key(shop.key.id)
        admin.make_api_key("trial", ["tasks:read"], ["emails"], expires_in=0.001)
        changed = {"name": "exports", "kind": "worker", **TYPES["exports"], "max_run": 3}
        admin.set_type_configuration("exports", changed, reason="the month ends")
