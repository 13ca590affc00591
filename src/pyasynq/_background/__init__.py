"""Background services: rounds and rests, time limits, signals, and the shutdown watchdog."""
