"""The Gearman protocol, for workers and clients that were written for gearmand."""

from .door import GearmanDoor

__all__ = ["GearmanDoor"]
