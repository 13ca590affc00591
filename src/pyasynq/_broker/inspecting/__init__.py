"""What the inspector reads and changes, as plans."""
