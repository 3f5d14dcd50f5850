"""Averages that are encrypted where a mask says so; the base of full-he and others.

Read ``method.py`` first.
"""
