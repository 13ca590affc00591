"""Plans of the doctor: examinations and repairs."""
