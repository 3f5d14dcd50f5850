"""Published methods of protecting updates, behind one interface: pure local steps, one role each.

A name, settings and a plan enter, a method leaves, which makes the roles. Read ``registry.py`` first, then
``masked_average/method.py``.
"""
