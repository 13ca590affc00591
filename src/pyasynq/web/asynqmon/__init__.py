"""The HTTP API of asynqmon v0.7.2, below `/api`: its routes, JSON objects, error messages and status codes.

Programs and pages that were written for asynqmon work against the dashboard.
Users, permissions, redaction and audit are the dashboard's. docs/dashboard.md lists the differences.
"""
