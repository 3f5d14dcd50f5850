"""Keys and memory: what a key authority holds and answers, and what clients hold to encrypt and to open.

Requests for enrolment and for sums enter; grants and answers leave. Read ``key_authority.py`` first, then
``total_opener.py`` for the client's side.
"""
