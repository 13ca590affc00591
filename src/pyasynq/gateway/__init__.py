"""The task service: task configurations, an HTTP API, and leases for workers in any language."""
