"""Settling: decisions become batches, and batches are written until Redis confirms them."""
