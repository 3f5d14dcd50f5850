"""Pictures, tables and pages of runs."""
