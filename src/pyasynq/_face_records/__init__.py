"""Output records of command line, dashboard and API: their fields, and functions that build them."""
