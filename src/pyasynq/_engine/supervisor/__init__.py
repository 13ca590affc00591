"""Supervisor of several workers, and the signs of life for probes."""
