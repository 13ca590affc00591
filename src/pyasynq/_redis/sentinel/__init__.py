"""Redis Sentinel: which server is the primary of a group, now and after a fail-over."""
