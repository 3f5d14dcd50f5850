"""What roles that lie in the protocol get: played against a method's own roles, in an embedded federation."""
