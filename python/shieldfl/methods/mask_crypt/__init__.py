"""MaskCrypt."""
