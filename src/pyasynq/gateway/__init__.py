"""The task service: task configurations, an HTTP API, and leases for workers in any language.

`pyasynq service` runs it; `api.task_service` returns its ASGI application.

- `configurations/`: the service's file and the configurations of its task types. They are stored in Redis,
  polled for changes, and applied to queues.
- `leases/`: routes by which remote workers, in any language, take tasks and settle them.
- `hosted/`: tasks that the service takes itself: it sends requests, runs commands, or fills Redis lists.
- `doors/`: protocol gateways for clients and workers of other queues, such as Gearman.
- `auth/`: authentication of requests: by API keys, or by the loopback address.
- `new_tasks.py`: how a task of a configured type is enqueued, by the API and by `pyasynq.sdk`.
- `api/`: the HTTP API `/v1`: tasks, task types, probes; it mounts the routes of `leases/`.
"""
