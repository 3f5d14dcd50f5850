"""Keys and memory: what a key authority holds and answers, and what clients hold to encrypt and to open.

Read ``key_authority.py`` first, then ``total_opener.py`` for the client's side; ``store.py`` is what both keep.
"""
