"""Opens many sums under kahe or pads and compares every value with integers.

Each value that is wrong is counted, and all of a sum that does not open. The exit status is 1 if there is any.

python bench/exactness.py kahe --compare 1000000000
python bench/exactness.py pads --compare 1000000

Each case draws parameters, authorities, clients that enrolled and those of them that stay, a mask, weights, and values,
random or the largest there are; the sum is that of the values as they are rounded when they are encrypted.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections import Counter

import numpy as np
from numpy.typing import NDArray

import shieldfl as sf
from shieldfl.encryption.enrolment import open_total
from shieldfl.lab.bench.comparison import EnrolledSession

_SCHEMES = {"kahe": sf.kahe, "pads": sf.pads}
# Bits of a value, bits behind the point, the most clients.
_SHAPES = ((24, 20, 64), (16, 12, 32), (16, 12, 1000), (8, 4, 5), (24, 20, 1), (30, 24, 3), (12, 6, 8))


class Cases:
    """Sums of values from one pool, at places of their own.

    Parameters
    ----------
    scheme : whose.
    seed : of all that is drawn but keys, frame ids and errors.
    most_values : of an update.
    """

    def __init__(self, scheme: str, seed: int, most_values: int) -> None:
        self._module = _SCHEMES[scheme]
        self._rng = np.random.default_rng(seed)
        self._most_values = most_values
        self.compared = 0
        """Values, those of sums that did not open included."""
        self.wrong = 0
        self.sums = Counter[int]()
        """By number of authorities."""
        self.unopened = 0
        """Sums."""

    def run(self, threads: int) -> None:
        """Open one sum and compare."""
        rng = self._rng
        bits, fraction, most = _SHAPES[rng.integers(len(_SHAPES))]
        settings = {"value_bits": bits, "fraction_bits": fraction, "max_clients": most}
        if self._module is sf.kahe and rng.random() < 0.5:
            settings["ring_degree"] = int(rng.choice([2048, 8192]))
        try:
            parameters = self._module.Parameters(**settings)
        except sf.ParameterError:  # no room in the smallest ring
            return
        # Few clients for most values, and all that there may be now and then.
        clients = most if rng.random() < 0.1 else int(rng.integers(1, min(most, 4) + 1))
        size = int(rng.integers(1, max(self._most_values // max(clients // 4, 1), 2)))
        authorities = int(rng.choice([1, 1, 2, 3]))
        session = EnrolledSession(parameters, clients, authorities)
        mask = sf.Mask.from_bool(rng.random(size) < rng.random()) if rng.random() < 0.5 else None
        weighted = bool(rng.random() < 0.3)
        pool = self._pool(parameters)
        aggregator = self._module.Aggregator(session.public_key, threads)
        expected = np.zeros(size if mask is None else mask.count, np.int64)
        for key in session.client_keys:
            first = int(rng.integers(0, pool.size - size))
            update = pool[first : first + size]
            weight = float(rng.integers(1, 9)) / 8 if weighted else None
            batch = self._module.Encryptor(key, threads).encrypt(update, mask, weight)
            # The last one stays out, where others are left: its key is in no answer.
            if key is session.client_keys[-1] and clients > 1 and rng.random() < 0.5:
                continue
            aggregator.add(batch.to_bytes(), key.client)
            chosen = update if mask is None else mask.gather(update)
            expected += np.rint(chosen.astype(np.float64) * (weight or 1.0) * 2.0**fraction).astype(np.int64)
        total = aggregator.total()
        self.sums[authorities] += 1
        self.compared += expected.size
        try:
            answers = session.answers(total.request(), list(total.named_clients), threads)
            sums, _ = open_total(session.public_key, total, answers, threads=threads)
        except sf.ShieldError as error:
            print(f"sum {self.sums.total()} does not open: {error}", file=sys.stderr)
            self.unopened += 1
            self.wrong += expected.size
            return
        self.wrong += int(np.count_nonzero(sums != expected * 2.0**-fraction))

    def _pool(self, parameters: sf.kahe.Parameters | sf.pads.Parameters) -> NDArray[np.float32]:
        """Return float32, twice as many as an update has: values in range, or the largest and smallest there are."""
        size = 2 * self._most_values
        limit = np.float32(parameters.value_limit)
        if float(limit) > parameters.value_limit:
            limit = np.nextafter(limit, np.float32(0))
        if self._rng.random() < 0.3:
            return self._rng.choice([-limit, limit, np.float32(0)], size).astype(np.float32)
        return (self._rng.random(size, np.float32) * 2 - 1) * limit


def main() -> int:
    """Run cases until so many values were compared; return 1 where one was wrong or a sum did not open."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scheme", choices=_SCHEMES)
    parser.add_argument("--compare", type=int, default=1_000_000, help="values, at least")
    parser.add_argument("--most-values", type=int, default=1 << 20, help="of an update")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    cases, begin = Cases(arguments.scheme, seed, arguments.most_values), time.perf_counter()
    while cases.compared < arguments.compare:
        cases.run(arguments.threads)
    seconds = round(time.perf_counter() - begin, 1)
    print(
        json.dumps(
            {
                "scheme": arguments.scheme,
                "seed": seed,
                "sums by authorities": dict(sorted(cases.sums.items())),
                "compared": cases.compared,
                "wrong": cases.wrong,
                "sums that did not open": cases.unopened,
                "seconds": seconds,
            }
        )
    )
    return 1 if cases.wrong or cases.unopened else 0


if __name__ == "__main__":
    sys.exit(main())
