"""The HTTP API of the dashboard for programs, below `/api/v1`.

`table.py` has one row for each route. Everything follows from it: the router, the checks of parameters and
bodies, and the OpenAPI document. A handler calls `Operator`, which checks permissions, redacts and audits.
"""
