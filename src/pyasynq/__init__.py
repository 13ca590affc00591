"""Asynq for Python."""
