"""A client's local training: models, SGD on its own samples, the update that comes of it."""
