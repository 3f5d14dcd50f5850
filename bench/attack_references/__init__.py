"""What measures attacks of the audit on updates and mechanisms that no federation runs."""
