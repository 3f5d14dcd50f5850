"""Pictures, tables and pages of a fleet's rounds."""
