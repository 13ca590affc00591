"""Taking tasks: which queue to ask, when, and for how many."""
