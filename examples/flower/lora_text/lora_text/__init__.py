"""A Flower app: adapters of a small transformer that tells praise from complaint."""
