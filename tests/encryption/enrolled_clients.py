"""Sessions of schemes in which clients enrol, with secrets that everybody can see and an authority that answers all."""

from __future__ import annotations

import itertools

import pytest

import shieldfl as sf
from shieldfl.encryption.enrolment import ClientKey, open_total
from shieldfl.encryption.opening import sum_key
from shieldfl.encryption.registry import scheme_of

AUTHORITY = bytes(range(16))
each_scheme = pytest.mark.parametrize("scheme", [sf.kahe, sf.pads], ids=["kahe", "pads"])


def session(scheme, manifest=1, **settings):
    parameters = scheme.Parameters(**{"max_clients": 4} | settings)
    return scheme.PublicKey.of_session(parameters, bytes([manifest]) * 32, AUTHORITY)


def client_key(public_key, client, round=0):
    key = ClientKey.of_secret(public_key, client, bytes([client % 255 + 1]) * 32)
    key.advance_to(round)
    return key


def encrypt(public_key, client, update, mask=None, weight=None, *, round=0, **options):
    encryptor = scheme_of(public_key).Encryptor(client_key(public_key, client), **options)
    return encryptor.encrypt(update, mask, weight, round)


def total_of(public_key, batches, **options):
    aggregator = scheme_of(public_key).Aggregator(public_key, **options)
    for batch in batches:
        aggregator.add(batch)
    return aggregator.total()


def answer(public_key, total):
    keys = [client_key(public_key, client, total.round) for client, _ in total.participants]
    return sum_key(public_key, total.request(), keys)


def opened(public_key, updates, **options):
    """The sums and the weights' sum of these updates, one of each client."""
    batches = [encrypt(public_key, client, update, **options) for client, update in enumerate(updates)]
    total = total_of(public_key, batches)
    return open_total(public_key, total, answer(public_key, total))


class KnownSession:
    """In the place of a key authority, for as many clients as are asked for."""

    def __init__(self, parameters):
        self.public_key = scheme_of(parameters).PublicKey.of_session(parameters, bytes(32), AUTHORITY)
        self._clients = itertools.count()

    def enrol(self):
        return client_key(self.public_key, next(self._clients))

    def open(self, total):
        return self._opened(total)[0]

    def open_mean(self, total):
        sums, weights = self._opened(total)
        return sums / (total.clients if weights is None else weights)

    def _opened(self, total):
        if isinstance(total, bytes):
            total = scheme_of(self.public_key).Total.from_bytes(total)
        return open_total(self.public_key, total, answer(self.public_key, total))
