"""Integrations with other libraries; each module needs the extra (optional dependency) of the same name."""
