"""A round of any method: roles and what they send.

Updates and opened sums enter, messages and the next model leave. Read ``driver.py`` first, then
``opening_rule.py``.
"""
