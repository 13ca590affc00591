"""Scalers for KEDA: by the length of a queue's list in Redis, by a metric, and by the dashboard's API."""

from __future__ import annotations

from typing import Any, Final

LOAD: Final = (
    'max(pyasynq_queue_load{queue="emails"} * on (queue) clamp_min(pyasynq_queue_slots{queue="emails"}, 1))'
)
"""Active, pending and due tasks of a queue."""
SLOTS_EACH: Final = 10
"""Number of slots of one worker replica, as the recipes assume."""


def _scaled_object(name: str, trigger: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"name": "emails-worker"},
            "minReplicaCount": 0,
            "maxReplicaCount": 20,
            "pollingInterval": 15,
            "cooldownPeriod": 300,
            "triggers": [trigger],
        },
    }


SCALERS: Final = {
    "redis-list": _scaled_object(
        "emails-by-length",
        {
            "type": "redis",
            "metadata": {
                "address": "redis.default.svc:6379",
                "listName": "asynq:{emails}:pending",
                "listLength": str(SLOTS_EACH),
                "activationListLength": "0",
                "databaseIndex": "0",
                "enableTLS": "false",
            },
        },
    ),
    "prometheus": _scaled_object(
        "emails-by-load",
        {
            "type": "prometheus",
            "metadata": {
                "serverAddress": "http://prometheus.monitoring.svc:9090",
                "query": LOAD,
                "threshold": str(SLOTS_EACH),
                "activationThreshold": "0",
            },
        },
    ),
    "dashboard": _scaled_object(
        "emails-by-tasks",
        {
            "type": "metrics-api",
            "metadata": {
                "url": "http://pyasynq-web.default.svc:8080/api/v1/scale?queue=emails&due_within=60",
                "valueLocation": "value",
                "targetValue": str(SLOTS_EACH),
                "activationTargetValue": "0",
                "authMode": "bearer",
            },
            "authenticationRef": {"name": "pyasynq-token"},
        },
    ),
}
