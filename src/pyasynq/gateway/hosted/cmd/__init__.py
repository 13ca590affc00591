"""Tasks of the kind `cmd`: a command for each attempt, started by a launcher and killed as a whole tree."""
