"""Sums of clients' vectors that are encrypted in part: uploads, totals, positions."""
