"""What all encryption schemes share, their interface and their registry."""
