"""Plans of the doctor (consistency check of Redis): examinations and repairs."""
