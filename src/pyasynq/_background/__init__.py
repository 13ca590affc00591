"""Background services (loops of work and pauses), time limits, signals, and the shutdown watchdog."""
