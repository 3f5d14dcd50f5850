"""A key authority as a process of its own: sessions that an aggregator begins over HTTPS, under the operator's policy.

``AuthorityService`` is what answers, whatever carries the messages; ``http_server`` carries them; ``AuthorityClient``
is the aggregator's side. Needs the extra ``authority``.
"""
