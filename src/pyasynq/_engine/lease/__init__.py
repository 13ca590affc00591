"""Leases: the roster of attempts, the renewal of their leases, and recovery of tasks whose worker died."""
