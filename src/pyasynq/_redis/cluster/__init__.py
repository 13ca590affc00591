"""Redis Cluster: the slot map, routing of calls to nodes, and resending after redirections."""
