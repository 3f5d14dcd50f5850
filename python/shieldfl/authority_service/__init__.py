"""A key authority as a process of its own: sessions that an aggregator begins over HTTPS, under the operator's policy.

Messages of rounds enter, signed answers leave; both take the extra ``authority``. Read ``service.py`` first,
which answers whatever carries the messages, then ``authority_client.py`` for the aggregator's side.
"""
