"""A round of any method: roles and what they send; read ``driver.py`` first, then ``opening_rule.py``."""
