"""Doors: servers for other protocols than HTTP, such as Gearman, for existing clients and workers."""
