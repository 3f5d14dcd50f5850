"""The three roles: client, aggregator, key authority. None of them can do what another one does."""
