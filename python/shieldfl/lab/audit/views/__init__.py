"""What parties of a federation get: recorded, and cut into views.

A run's messages enter, observed updates leave. Read ``view.py`` first.
"""
