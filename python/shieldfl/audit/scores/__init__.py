"""How right an attack is, beside chance, and between what its success lies."""
