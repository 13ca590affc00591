"""Waiting for the ends of tasks, and following their events."""
