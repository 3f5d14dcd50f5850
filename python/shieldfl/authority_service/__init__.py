"""A key authority as its own process: aggregators begin sessions over HTTPS under its operator's policy.

Messages of rounds enter, signed answers leave; both take the extra ``authority``. Read ``service.py`` first,
which answers whatever carries the messages, then ``authority_client.py`` for the aggregator's side.
"""
