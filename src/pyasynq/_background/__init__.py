"""Background services: rounds and rests, time limits, signals, and the watch over a shutdown."""
