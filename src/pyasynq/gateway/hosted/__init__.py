"""Task types that the service runs itself: it leases their tasks and runs the handler of their kind."""

from .hosted_worker import HostedWorker

__all__ = ["HostedWorker"]
