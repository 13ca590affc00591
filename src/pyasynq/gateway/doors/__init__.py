"""Doors: servers for protocols other than HTTP, for existing clients and workers."""
