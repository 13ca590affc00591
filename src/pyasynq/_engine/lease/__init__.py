"""Leases: the roster of held ones, their renewal, and the recovery of tasks whose worker died."""
