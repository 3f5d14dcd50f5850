"""What an attacker knows and puts where values are hidden."""
