"""What the doctor finds and mends, as plans."""
