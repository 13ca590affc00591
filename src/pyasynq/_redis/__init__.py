"""The Redis client: it connects, sends calls and returns replies. It knows nothing of queues or tasks.

A caller hands a driver *plans* (`plan`): generators that yield calls and are sent the replies.
`AsyncDriver` and `BlockingDriver` (`driver`) run them, one alone or many in a batch, on one server,
on a primary under Sentinel or on a cluster. Both make the same decisions, because all of these are in
modules that never wait: `exchange` for one server, `cluster.routes` for a cluster, `sentinel.search`.

What a driver promises:

- A *round* is what a batch asks at the same time. It is one pipeline to each node.
- A round ends within the driver's timeout. Connecting, moving to another node and sending again are included.
- An error belongs to its own plan. It is raised at the plan's `yield`; the rest of the batch goes on.
- A call that did not run is sent again until the timeout: its script is missing, the server is loading
  or is a replica, or the slot has moved.
- A call whose reply was lost is sent again as far as its `Replay` allows; if not, it ends in
  `ReplyLostError`.
- A cancelled caller gets `CancelledError`; what was sent may take effect.
- A driver works from any event loop or thread, and after a fork, with connections of its own for each.

Where to look: URLs and TLS in `url`, `addresses` and `tls`; redis-py's connections in `redis_py`,
`connection_async` and `connection_blocking`; pools in `pool_async` and `pool_blocking`; the greeting and
what it learns of a server in `login` and `session`; errors in `failures` (connections) and `reply_errors`
(replies). `key_watcher` tells of changed keys, `subscription` listens to a channel, `durability` waits for
replicas, `facts` asks what the server is.
"""
