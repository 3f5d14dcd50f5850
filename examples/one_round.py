"""One round of encrypted averaging, with each message between roles. `python one_round.py` needs the extra `keys`."""

import numpy as np

import shieldfl as sf

NAMES = ("clinic-1", "clinic-2", "clinic-3")


def sent(way: str, name: str, message: bytes) -> bytes:
    """Print a message on its way: over a network it would be these bytes."""
    print(f"{way:<24} {name:<36} {len(message):>6,} bytes")
    return message


def main() -> np.ndarray:
    """Return the mean of the clients' updates."""
    authority = sf.KeyAuthority(sf.kahe.Parameters.plan(max_clients=3, count=1000), min_clients=3)
    frame = sent("authority > all", "public key", authority.public_key.to_bytes())
    identity = sent("authority > all", "identity", authority.public_key.identity.to_bytes())
    public_key = sf.kahe.PublicKey.from_bytes(frame, identity=identity)  # on aggregator and clients
    aggregator = sf.kahe.Aggregator(public_key, round=1, positions=sf.Mask.full(1000), weighted=False)
    for number, name in enumerate(NAMES):  # on each client
        key, request = sf.kahe.ClientKey.request(public_key, name)
        authority.accept(sent(f"{name} > authority", "request for enrolment", request))
        key.take_grant(sent(f"authority > {name}", "grant", authority.grant(name)))
        update = np.arange(1000) * number / 1000  # training would stand here
        batch = sf.kahe.Encryptor(key).encrypt(update, round=1)
        aggregator.add(sent(f"{name} > aggregator", "encrypted update", batch.to_bytes()))
    encrypted = aggregator.total()
    request = sent("aggregator > authority", "list of clients, digest of the total", encrypted.request())
    answer = sent("authority > clients", "answer", authority.sum_key(request))
    frame = sent("aggregator > clients", "encrypted total", encrypted.to_bytes())
    total = sf.kahe.Total.from_bytes(frame)
    return sf.kahe.open(total, answer, key) / total.clients  # on each client, here the last


if __name__ == "__main__":
    assert np.allclose(main(), np.arange(1000) / 1000, atol=1e-6)
