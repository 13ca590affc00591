"""Task types that the service runs itself: it leases their tasks and runs the handler of their kind."""
