"""The task service: task configurations, an HTTP API, and leases for workers in any language.

`pyasynq service` runs it; `api.task_service` is the ASGI application.

- `configurations/`: the file of the service and its task types; stored, followed, and applied to queues.
- `leases/`: the protocol of workers elsewhere, as routes.
- `auth/`: API keys of requests, or this machine alone.
- `new_tasks.py`: how a task of a configured type is enqueued, by the API and by `pyasynq.sdk`.
- `api/`: the HTTP API `/v1`: tasks, task types, probes; it mounts the routes of `leases/`.
"""
