"""How the handler of a task is found and called: routes, middleware, threads, and group routes."""
