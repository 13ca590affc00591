"""Pages of the dashboard, one module for each: view models, and the functions that build them."""
