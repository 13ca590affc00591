"""Running tasks: from an attempt to its decision."""
