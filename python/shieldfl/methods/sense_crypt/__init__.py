"""SenseCrypt."""
