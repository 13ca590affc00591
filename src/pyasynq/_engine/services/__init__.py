"""The background services of servers and consumers, one loop in each module."""
