"""Redis Sentinel: finding the primary of a group, now and after a failover."""
