"""Redis Cluster: which node has which slot, and what is sent again to which node."""
