"""BatchCrypt."""
