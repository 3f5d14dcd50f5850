"""Attacks on what parties of a federation really receive, and what they get beside chance.

Methods and attacks enter, cells of an audit leave. Read ``session.py`` first, then ``attack.py``.
"""
