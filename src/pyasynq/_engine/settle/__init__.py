"""Settling: decisions are grouped in batches, which are sent until Redis confirms them."""
