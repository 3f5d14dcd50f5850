"""SelectiveShield: clients vote on what is encrypted. Read ``method.py`` first."""
