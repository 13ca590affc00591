"""Doors for other protocols than HTTP, each for the clients and workers that exist for it."""
