"""The attack tables of the papers that the methods are from, for bench/audit_papers.py."""
