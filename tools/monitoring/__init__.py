"""Description of dashboards, alerts and scalers, from which `tools/generate_monitoring.py` writes files."""
