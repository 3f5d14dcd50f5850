"""What a client does between two rounds: models, training on its own samples, and the update that comes of it."""
