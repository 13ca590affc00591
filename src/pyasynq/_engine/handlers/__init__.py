"""Handlers: routes, middleware, threads, and routes of groups."""
