"""Published attacks on what a party holds of clients' updates or of the final model."""
