"""Connections: everything that waits for Redis, and nothing else. A driver runs plans; see `driver`."""
