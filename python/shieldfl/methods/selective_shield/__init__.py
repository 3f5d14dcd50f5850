"""SelectiveShield."""
