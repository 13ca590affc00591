"""Several workers under one supervisor, and the signs of life that probes ask for."""
