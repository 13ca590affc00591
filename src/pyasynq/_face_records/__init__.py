"""Records that faces show: their fields, and functions that make them of what the operator returns."""
