"""Tasks of the kind `list`: workers with only a Redis client take them from a Redis list (BLMOVE)."""
