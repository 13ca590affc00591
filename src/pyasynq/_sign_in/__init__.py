"""Options of sign-in, for the dashboard and the task service's file: OpenID provider, roles of groups."""
