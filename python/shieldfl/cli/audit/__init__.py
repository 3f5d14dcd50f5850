"""``shieldfl audit``: its options, progress and table."""
