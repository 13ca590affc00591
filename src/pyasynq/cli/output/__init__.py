"""Output of operator commands: fields declared once, and the formats that show them."""
