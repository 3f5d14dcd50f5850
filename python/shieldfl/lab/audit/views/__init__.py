"""What parties of a federation get: recorded, and cut into views."""
