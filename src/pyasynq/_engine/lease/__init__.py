"""Leases: who holds them, their renewal, and the recovery of tasks whose worker is gone."""
