"""SenseCrypt: clusters of clients, and masks by each one's budget. Read ``method.py`` first."""
