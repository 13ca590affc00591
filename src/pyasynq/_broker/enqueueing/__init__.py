"""Enqueueing: composing tasks, gathering them into batches, sending them, and the result of each."""
