"""The Redis client: it connects, sends calls and returns replies, and knows nothing of queues or tasks.

A caller hands a driver *plans* (`plan`): generators that yield calls and are sent the replies.
`AsyncDriver` and `BlockingDriver` (`driver`) run them, one alone or many in a batch, on a single server,
on a primary under Sentinel or on a cluster. Both make the same decisions, because every decision is in a
module without I/O: `exchange` for one server, `cluster.routes` for a cluster, `sentinel.search`.

What a driver promises:

- A *round* is the set of calls that a batch makes at the same time: one pipeline to each node.
- A round ends within the driver's timeout, which includes connecting, moving to another node and resending.
- An error belongs to its own plan. It is raised at the plan's `yield`; the rest of the batch goes on.
- A call that did not run is resent until the timeout: its script is missing, the server is loading
  or is a replica, or the slot has moved.
- A call whose reply was lost is resent if its `Replay` allows it; otherwise it ends in `ReplyLostError`.
- A cancelled caller gets `CancelledError`; calls already sent may take effect.
- A driver works from any event loop or thread, and after a fork, with separate connections for each.

Where to look: URLs and TLS in `url`, `addresses` and `tls`; redis-py's connections in `redis_py`,
`connection_async` and `connection_blocking`; connection pools in `pool_async` and `pool_blocking`; login and
version detection in `session`; errors in `failures` (connections) and `reply_errors`
(replies). `key_watcher` reports changed keys (client-side caching), `subscription` listens to a channel
(pub/sub), `durability` waits for replicas (WAIT), `facts` reads the server's version and settings.
`read_pairs` lets two reads run at the same time.
"""
