"""``shieldfl authority``: a key authority as a process of its own."""
