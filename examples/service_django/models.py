"""The rows that say how tasks have ended."""

from django.db import models


class Dataset(models.Model):  # type: ignore[misc] # Django has no types
    """A data set, and the state of its task."""

    path = models.TextField()
    state = models.CharField(max_length=20, default="queued")
    error = models.TextField(default="")

    def __str__(self) -> str:
        """Return its path and state."""
        return f"{self.path} ({self.state})"
