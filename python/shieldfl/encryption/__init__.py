"""Update in, frames out, and one opened sum: the same classes for every scheme, which the key names.

Read ``encryption.py`` first; ``interface.py`` says what a scheme is. Each scheme states its facts in its own folder.
"""
