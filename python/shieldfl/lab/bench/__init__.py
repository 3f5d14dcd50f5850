"""Ours and other libraries on the same values, in one process and one run.

Cases enter, seconds and bytes of each library leave. Read ``comparison.py`` first.
"""
