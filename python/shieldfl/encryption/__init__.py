"""Update in, frames out, and one opened sum: the same classes for every scheme, which the key names.

Read ``registry.py`` first: it says what a scheme is. Each scheme is a module of its own.
"""
