"""Background services of servers and consumers, one module for each."""
