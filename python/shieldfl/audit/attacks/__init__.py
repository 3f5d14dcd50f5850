"""Published attacks, one file each, on what a party holds of clients' updates or of the final model."""
