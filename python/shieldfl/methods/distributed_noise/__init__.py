"""Averages whose sums have noise: every client adds a share of it before it encrypts."""
