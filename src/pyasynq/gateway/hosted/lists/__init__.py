"""Kind `list`: tasks for workers that only speak Redis, passed on through lists."""
