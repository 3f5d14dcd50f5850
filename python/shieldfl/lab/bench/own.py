"""Ours: CKKS's and Paillier's parameter sets, packings, engines and randomisers, and schemes whose clients enrol."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.encryption import ckks, paillier
from shieldfl.encryption.enrolment import ClientKey, open_total
from shieldfl.encryption.opening import sum_key
from shieldfl.encryption.registry import REGISTRY, scheme_of
from shieldfl.lab.bench.measurement import FRACTION_BITS, VALUE_BITS, Scheme, Selection

UPDATE_SCHEMES = ("ckks", *(name for name, scheme in REGISTRY.items() if scheme.enrols))
"""Of ours, that encrypt whole updates."""


def parameter_sets(scheme: str) -> dict[str, Any]:
    """Return what is compared by default of one of ``UPDATE_SCHEMES``, by the names of the tables.

    Of ``ckks`` equal sets share a name, and the first is the default.
    """
    if scheme == "ckks":
        plan = ckks.Parameters.plan
        names: dict[ckks.Parameters, list[str]] = {}
        for name, own in (
            ("default", ckks.Parameters()),
            ("speed", plan(goal="speed")),
            ("size", plan(goal="size")),
            ("16-bit", plan(max_clients=32, value_bits=16, fraction_bits=12, goal="size")),
        ):
            names.setdefault(own, []).append(name)
        return {" = ".join(alike): own for own, alike in names.items()}
    make = REGISTRY[scheme].Parameters
    sets = {
        f"{scheme} 24/64": make(max_clients=64, value_bits=24, fraction_bits=20),
        f"{scheme} 16/32": make(max_clients=32, value_bits=16, fraction_bits=12),
        f"{scheme} 16/1000": make(max_clients=1000, value_bits=16, fraction_bits=12),
    }
    if scheme == "kahe":
        sets["kahe 24/64, N = 8192"] = make(max_clients=64, value_bits=24, fraction_bits=20, ring_degree=8192)
    return sets


def own_schemes(scheme: str, threads: int) -> list[Scheme]:
    """Return a scheme for each parameter set, the default first."""
    sets = parameter_sets(scheme).items()
    if scheme == "ckks":
        return [own_scheme(name, authority_of(own, threads), threads) for name, own in sets]
    return [_enrolled_scheme(name, own, threads) for name, own in sets]


def paillier_parameters(
    key_bits: int,
    packing: Literal["single", "dense"] = "single",
    randomizer: Literal["short-exponent", "classical"] = "short-exponent",
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


def _own(
    name: str,
    setting: str,
    public_key: Any,
    threads: int,
    encrypt: Callable[[Selection], Any],
    open_total: Callable[[Any], NDArray[np.float64]],
    **other: Any,
) -> Scheme:
    parameters = public_key.parameters
    scheme = scheme_of(parameters)

    def start_sum(frame: bytes) -> Any:
        aggregator = scheme.Aggregator(public_key, threads)
        aggregator.add(frame)
        return aggregator

    return Scheme(
        name=f"shieldfl {name}",
        setting=setting,
        encrypt=encrypt,
        serialise=lambda batch: batch.to_bytes(),
        start_sum=start_sum,
        add=lambda total, frame: total.add(frame),
        open=open_total,
        values_per_ciphertext=parameters.values_per_ciphertext,
        fraction_bits=parameters.fraction_bits,
        own=True,
        **other,
    )


def own_scheme(
    name: str,
    authority: KeyAuthority,
    threads: int,
    ciphertexts: int | None = None,
    *,
    engine: str | None = None,
    **options: Any,
) -> Scheme:
    """Return our library under the key of an authority, which other schemes may share: Paillier's take seconds to make.

    Parameters
    ----------
    ciphertexts : how many ciphertexts it is timed on; None for the whole update, the mask included.
    engine : "gmp" for Paillier's that needs no particular processor; None for the fastest.
    options : of the encryptor, such as ``lookups_vartime``.
    """
    public_key: Any = authority.public_key
    parameters = public_key.parameters
    setting = repr(parameters)
    if engine is not None:
        setting += f", encrypting and adding with engine={engine!r}, decrypting with the fastest"
        frame = public_key.to_bytes()
        public_key = paillier.PublicKey(_core.PaillierPublicKey.from_bytes(frame, engine=engine))
    setting += "".join(f", {option}={value!r}" for option, value in options.items())
    encryptor = scheme_of(parameters).Encryptor(public_key, threads, **options)
    most = None if ciphertexts is None else ciphertexts * parameters.values_per_ciphertext

    def encrypt(selection: Selection) -> Any:
        if most is None:
            return encryptor.encrypt(selection.update, selection.mask)
        return encryptor.encrypt(selection.values[:most])

    return _own(
        name,
        setting,
        public_key,
        threads,
        encrypt,
        authority.open,
        add_with_clear=lambda total, frame, clear: total.add(frame, clear=clear),
        close=lambda total: total.total(),
        most_values=most,
        encryptor=encryptor,
    )


class EnrolledSession:
    """Some clients, and the authority that has the keys of all of them, or several; everybody's are random.

    An authority computes its answer and decides nothing: what a real one remembers of its answers is not measured.
    """

    def __init__(self, parameters: Any, clients: int, authorities: int = 1) -> None:
        self.scheme = scheme_of(parameters)
        self.public_key = self.scheme.PublicKey.of_session(
            parameters, secrets.token_bytes(32), secrets.token_bytes(16)
        )
        shared = [[secrets.token_bytes(32) for _ in range(authorities)] for _ in range(clients)]
        self.client_keys = self._keys([b"".join(own) for own in shared])
        self._keys_by_authority = [self._keys(list(part)) for part in zip(*shared, strict=True)]

    def _keys(self, shared: list[bytes]) -> list[Any]:
        make = ClientKey.of_secret
        return [make(self.public_key, client, secret) for client, secret in enumerate(shared)]

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


def _enrolled_scheme(name: str, parameters: Any, threads: int) -> Scheme:
    """Return two clients of a session, its aggregator, its authority, and whoever opens the sum."""
    session = EnrolledSession(parameters, clients=2)
    scheme, public_key = session.scheme, session.public_key
    first, other = (scheme.Encryptor(key, threads) for key in session.client_keys)
    # A sum holds a client once: the frame that sums begin with is the first one's, all others are the other's.
    turns: Iterator[Any] = chain([first], repeat(other))

    def close(aggregator: Any) -> tuple[Any, bytes]:
        total = aggregator.total()
        return total, total.request()

    def answer(closed: tuple[Any, bytes]) -> tuple[Any, bytearray]:
        total, request = closed
        return total, session.answer(request, [client for client, _ in total.participants], threads)

    def open_answered(answered: tuple[Any, bytearray]) -> NDArray[np.float64]:
        """Parse, check and digest the total's frame, as whoever gets it has to, and open it."""
        total, key = answered
        opened, _ = open_total(public_key, scheme.Total(total.to_bytes()), key, threads=threads)
        return opened

    return _own(
        name,
        f"{scheme.name}.{parameters!r}",
        public_key,
        threads,
        lambda selection: next(turns).encrypt(selection.update, selection.mask),
        open_answered,
        close=close,
        answer=answer,
    )
