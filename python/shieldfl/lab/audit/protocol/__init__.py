"""What roles that lie in the protocol get: played against a method's own roles, in an embedded federation.

A method and a lie enter, what the liar got leaves. Read ``protocol_attack.py`` first.
"""
