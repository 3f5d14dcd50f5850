"""Ours: CKKS's and Paillier's parameter sets, packings, engines and randomisers, and schemes whose clients enrol."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.encryption import ckks, paillier
from shieldfl.encryption.answers import open_total
from shieldfl.encryption.opening import sum_key
from shieldfl.encryption.registry import REGISTRY, scheme_of
from shieldfl.lab.bench.scheme import FRACTION_BITS, VALUE_BITS, Scheme, Selection

Packing = Literal["single", "dense"]
Randomizer = Literal["short-exponent", "classical"]


def parameter_sets() -> dict[str, ckks.Parameters]:
    """Return what of CKKS is compared by default, under the names of the tables; equal sets share a name."""
    plan = ckks.Parameters.plan
    named = {
        "default": ckks.Parameters(),
        "speed": plan(goal="speed"),
        "size": plan(goal="size"),
        "16-bit": plan(max_clients=32, value_bits=16, fraction_bits=12, goal="size"),
    }
    names: dict[ckks.Parameters, list[str]] = {}
    for name, parameters in named.items():
        names.setdefault(parameters, []).append(name)
    return {" = ".join(alike): parameters for parameters, alike in names.items()}


def paillier_parameters(
    key_bits: int, packing: Packing = "single", randomizer: Randomizer = "short-exponent"
) -> paillier.Parameters:
    """Return what of Paillier is compared: 24-bit values, 20 bits of them behind the point, 64 clients."""
    return paillier.Parameters(
        key_bits=key_bits,
        packing=packing,
        max_clients=64,
        value_bits=VALUE_BITS,
        fraction_bits=FRACTION_BITS,
        randomizer=randomizer,
    )


def authority_of(parameters: ckks.Parameters | paillier.Parameters, threads: int) -> KeyAuthority:
    """Return an authority that opens as often as it is asked.

    Each repetition sums anew, which the protection against two totals of one round would stop. Its work, a digest of
    the total, is done and timed all the same.
    """
    return KeyAuthority(parameters, min_clients=1, one_total_per_round=False, threads=threads)


def own_ckks(threads: int) -> list[OwnScheme]:
    """Return a scheme for each parameter set; the first one is the default, which others are compared with."""
    return [
        OwnScheme(name, authority_of(parameters, threads), threads)
        for name, parameters in parameter_sets().items()
    ]


def enrolled_parameter_sets(name: str) -> dict[str, Any]:
    """Return what of a scheme in which clients enrol is compared, by name: bits of a value and clients of a sum."""
    make = REGISTRY[name].Parameters
    sets = {
        f"{name} {value_bits}/{clients}": make(
            max_clients=clients, value_bits=value_bits, fraction_bits=fraction_bits
        )
        for value_bits, fraction_bits, clients in ((24, 20, 64), (16, 12, 32), (16, 12, 1000))
    }
    with_ring = "ring_degree" in make._SETTINGS
    return sets | ({f"{name} 24/64, N = 8192": make(ring_degree=8192)} if with_ring else {})


def own_enrolled(name: str, threads: int) -> list[Scheme]:
    """Return a scheme for each of these parameter sets, 24-bit values of 64 clients first."""
    return [
        EnrolledScheme(name, EnrolledSession(parameters, clients=2), threads)
        for name, parameters in enrolled_parameter_sets(name).items()
    ]


class _Own(Scheme):
    """What all schemes of ours do alike."""

    own = True
    untimed = frozenset()

    def __init__(
        self, name: str, public_key: Any, threads: int, setting: str, most_values: int | None = None
    ) -> None:
        parameters = public_key.parameters
        super().__init__(
            f"shieldfl {name}",
            setting,
            most_values,
            values_per_ciphertext=parameters.values_per_ciphertext,
            fraction_bits=parameters.fraction_bits,
        )
        self._scheme, self._public_key, self._threads = scheme_of(parameters), public_key, threads

    def serialise(self, encrypted: Any) -> bytes:
        """Return the frame that is there already, header and checksum included."""
        frame: bytes = encrypted.to_bytes()
        return frame

    def start_sum(self, frame: bytes) -> Any:
        """Make an aggregator that holds one frame."""
        aggregator = self._scheme.Aggregator(self._public_key, self._threads)
        aggregator.add(frame)
        return aggregator

    def add(self, total: Any, frame: bytes) -> None:
        """Parse, check and add a frame."""
        total.add(frame)


class OwnScheme(_Own):
    """Our library under the key of an authority, which other schemes may share: Paillier's take seconds to make.

    Parameters
    ----------
    ciphertexts : how many ciphertexts it is timed on; None for the whole update, the mask included.
    engine : "gmp" for Paillier's that needs no particular processor; None for the fastest.
    options : of the encryptor, such as ``lookups_vartime``.
    """

    def __init__(
        self,
        name: str,
        authority: KeyAuthority,
        threads: int,
        ciphertexts: int | None = None,
        *,
        engine: str | None = None,
        **options: Any,
    ) -> None:
        parameters = authority.public_key.parameters
        setting = repr(parameters)
        if engine is not None:
            setting += f", encrypting and adding with engine={engine!r}, decrypting with the fastest"
        setting += "".join(f", {option}={value!r}" for option, value in options.items())
        public_key: Any = authority.public_key
        if engine is not None:
            public_key = paillier.PublicKey(
                _core.PaillierPublicKey.from_bytes(public_key.to_bytes(), engine=engine)
            )
        most = None if ciphertexts is None else ciphertexts * parameters.values_per_ciphertext
        super().__init__(name, public_key, threads, setting, most)
        self._authority = authority
        self.encryptor = self._scheme.Encryptor(public_key, threads, **options)

    def encrypt(self, selection: Selection) -> Any:
        """Encrypt; the frame is made in the same pass."""
        if self.most_values is None:
            return self.encryptor.encrypt(selection.update, selection.mask)
        return self.encryptor.encrypt(self.sample(selection))

    def add_with_clear(self, total: Any, loaded: bytes, clear: NDArray[np.float32]) -> None:
        """Parse, check and add a frame and what its client sent in the clear."""
        total.add(loaded, clear=clear)

    def close(self, total: Any) -> Any:
        """Return the total's frame."""
        return total.total()

    def open(self, closed: Any) -> NDArray[np.float64]:
        """Parse, check and open a total's frame."""
        return self._authority.open(closed)


class EnrolledSession:
    """Some clients, and the authority that has the keys of all of them, or several; everybody's are random.

    An authority computes its answer and decides nothing: what a real one remembers of its answers is not measured.
    """

    def __init__(self, parameters: Any, clients: int, authorities: int = 1) -> None:
        manifest, authority = secrets.token_bytes(32), secrets.token_bytes(16)
        self.scheme = scheme_of(parameters)
        self.public_key = self.scheme.PublicKey.of_session(parameters, manifest, authority)
        shared = [[secrets.token_bytes(32) for _ in range(authorities)] for _ in range(clients)]
        self.client_keys = [
            self.scheme.ClientKey.of_secret(self.public_key, client, b"".join(own))
            for client, own in enumerate(shared)
        ]
        self._keys_by_authority = [
            [
                self.scheme.ClientKey.of_secret(self.public_key, client, own[authority])
                for client, own in enumerate(shared)
            ]
            for authority in range(authorities)
        ]

    def answer(self, request: bytes, participants: list[int], threads: int) -> bytearray:
        """Derive the one-time secrets of these clients and sum them: what the only authority answers."""
        (answer,) = self.answers(request, participants, threads)
        return answer

    def answers(self, request: bytes, participants: list[int], threads: int) -> list[bytearray]:
        """Return what each authority derives in this way: all of it opens the total that is asked for."""
        return [
            sum_key(self.public_key, request, [keys[client] for client in participants], threads=threads)
            for keys in self._keys_by_authority
        ]


class EnrolledScheme(_Own):
    """Two clients of a session, its aggregator, its authority, and whoever opens the sum."""

    def __init__(self, name: str, session: EnrolledSession, threads: int) -> None:
        setting = f"{session.scheme.name}.{session.public_key.parameters!r}"
        super().__init__(name, session.public_key, threads, setting)
        self._session = session
        first, other = (session.scheme.Encryptor(key, threads) for key in session.client_keys[:2])
        # A sum holds a client once: the frame that sums begin with is the first one's, all others are the other's.
        self._turns: Iterator[Any] = chain([first], repeat(other))

    def encrypt(self, selection: Selection) -> Any:
        """Encrypt; the frame is made in the same pass."""
        return next(self._turns).encrypt(selection.update, selection.mask)

    def close(self, total: Any) -> tuple[Any, bytes]:
        """Return the total's frame and the request for its key, with a digest of the frame."""
        frame = total.total()
        return frame, frame.request()

    def answer(self, closed: tuple[Any, bytes]) -> tuple[Any, bytearray]:
        """Return the total and the key that opens it."""
        total, request = closed
        participants = [client for client, _ in total.participants]
        return total, self._session.answer(request, participants, self._threads)

    def open(self, closed: tuple[Any, bytearray]) -> NDArray[np.float64]:
        """Parse, check and digest the total's frame, as whoever gets it has to, and open it."""
        total, key = closed
        total = self._scheme.Total(total.to_bytes())
        opened, _ = open_total(self._public_key, total, key, threads=self._threads)
        return opened
