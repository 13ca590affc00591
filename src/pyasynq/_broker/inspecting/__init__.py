"""Plans of the inspector: reading and changing queues, tasks, servers and schedulers."""
