"""Plans of operators: the audit, saved views, and operations on many tasks."""
