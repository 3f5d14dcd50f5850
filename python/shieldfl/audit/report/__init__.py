"""The report of an audit: what came out in sentences, tables, pictures and files."""
