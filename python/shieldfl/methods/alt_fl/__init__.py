"""Alt-FL."""
