"""Comparisons of this library with others on the same values, case by case, and its schemes in them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from itertools import chain, product, repeat
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.build_info import build_info, machine_facts
from shieldfl.encryption import ckks, paillier
from shieldfl.encryption.enrolment import ClientKey, open_total
from shieldfl.encryption.opening import sum_key
from shieldfl.encryption.registry import REGISTRY, KeyBits, scheme_of
from shieldfl.lab.bench import others
from shieldfl.lab.bench.measurement import (
    FRACTION_BITS,
    VALUE_BITS,
    Effort,
    Figure,
    Scheme,
    Selection,
    measure,
    run_on_cores,
    select,
)
from shieldfl.lab.bench.others import Peer
from shieldfl.settings import Settings, Share, Threads, about

UPDATE_SCHEMES = ("ckks", *(name for name, scheme in REGISTRY.items() if scheme.enrols))
"""Names of this library's schemes that encrypt whole updates."""
Values = Annotated[int, Meta(ge=1, le=2**31)]
"""Number of values of an update, at most as many as a mask may have positions."""

Measured = tuple[list[Figure], list[str]]
"""Figures of all schemes, this library's default first; and how to install the libraries that are missing."""


@dataclass(frozen=True)
class UpdateCase(Settings):
    """An update of ``values`` values, of which a random ``share`` is encrypted on ``threads`` threads."""

    values: Values
    share: Share
    threads: Threads
    schemes: Annotated[tuple[str, ...], Meta(min_length=1), about("", choices=UPDATE_SCHEMES)] = (
        UPDATE_SCHEMES
    )

    def __str__(self) -> str:
        which = "all values" if self.share >= 1.0 else f"a random {self.share:.3g} of them"
        return f"{self.values:,} values, {which}, {_threads(self.threads)}"

    def measure(self, baselines: bool, effort: Effort) -> Measured:
        """Time our schemes, SEAL, TenSEAL, Flower and a plain copy. Raises WrongSumError."""
        schemes = [scheme for name in self.schemes for scheme in own_schemes(name, self.threads)]
        missing: list[str] = []
        if baselines:
            most = effort.baseline_values
            schemes += others.seal_baselines(self.threads, most)
            found, missing = _installed(
                (others.TENSEAL, lambda: others.tenseal_baselines(self.threads, most)),
                (others.FLOWER, lambda: others.flower_baselines(most)),
            )
            schemes += [*found, others.plain_copy()]
        return measure(schemes, select(self.values, self.share), effort), missing


@dataclass(frozen=True)
class PaillierCase(Settings):
    """A key size and a number of threads."""

    key_bits: KeyBits
    threads: Threads

    def __str__(self) -> str:
        return f"{self.key_bits:,}-bit keys, {_threads(self.threads)}"

    def measure(self, baselines: bool, effort: Effort) -> Measured:
        """Time Paillier, phe and HEU in a process that is bound to as many cores as threads.

        Raises WrongSumError.
        """
        return run_on_cores(self.threads, _measure_on_cores, self, baselines, effort)


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


Case = UpdateCase | PaillierCase


@dataclass(frozen=True)
class CaseResult:
    """A case and the costs of each scheme in it.

    The first figure is this library's with default parameters.
    """

    case: Case
    figures: list[Figure]

    def times_own(self, figure: Figure) -> float:
        """How many times as long as the default parameters a scheme takes from values to bytes."""
        return figure.encrypt_and_serialise_ns / self.figures[0].encrypt_and_serialise_ns


@dataclass
class Comparison:
    """All cases of one run."""

    machine: dict[str, Any]
    cases: list[CaseResult] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Lines about libraries that could not be compared, with how to install them."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, for ``--json``; times are nanoseconds for each value."""
        cases = [
            asdict(result.case)
            | {
                "selected": result.figures[0].values,
                "figures": [asdict(one) | {"times_own": result.times_own(one)} for one in result.figures],
            }
            for result in self.cases
        ]
        return {"machine": self.machine, "missing": self.missing, "cases": cases}


def grid(case: type[Case], *axes: Sequence[Any]) -> list[Case]:
    """Return the cases of every combination. Raises ParameterError for a number out of range."""
    return [case(*combination) for combination in product(*axes)]


def compare(
    cases: Sequence[Case],
    *,
    baselines: bool = True,
    effort: Effort,
    on_case: Callable[[int, Case], None] = lambda done, case: None,
) -> Comparison:
    """Measure the cases, all schemes side by side; ``on_case`` is told how many are done, and the next one.

    Raises WrongSumError when a scheme opens a wrong sum.
    """
    comparison = Comparison(describe_machine())
    for done, case in enumerate(cases):
        on_case(done, case)
        figures, comparison.missing = case.measure(baselines, effort)
        comparison.cases.append(CaseResult(case, figures))
    return comparison


def own_paillier(case: PaillierCase, effort: Effort) -> list[Scheme]:
    """Return this library's Paillier, under three keys; the first one is what others are compared with."""
    single, dense, classical = (
        authority_of(parameters, case.threads)
        for parameters in (
            paillier_parameters(case.key_bits),
            paillier_parameters(case.key_bits, "dense"),
            paillier_parameters(case.key_bits, randomizer="classical"),
        )
    )
    threads, fast = case.threads, effort.fast_ciphertexts
    return [
        own_scheme("single", single, threads, fast),
        own_scheme("single, vartime look-ups", single, threads, fast, lookups_vartime=True),
        own_scheme("dense", dense, threads, fast),
        own_scheme("single, GMP engine", single, threads, effort.medium_ciphertexts, engine="gmp"),
        own_scheme("single, classical", classical, threads, effort.slow_ciphertexts),
    ]


def paillier_baselines(case: PaillierCase, effort: Effort) -> tuple[list[Scheme], list[str]]:
    return _installed(
        (others.PHE, lambda: [others.phe_baseline(case.key_bits, case.threads, effort.slow_ciphertexts)]),
        (others.HEU, lambda: others.heu_baselines(case.key_bits, effort.medium_ciphertexts)),
    )


def measure_paillier(schemes: Sequence[Scheme], effort: Effort) -> list[Figure]:
    """Time schemes of Paillier in turns, each on as many values as it is made for."""
    most_values = max(scheme.most_values or 0 for scheme in schemes)
    return measure(schemes, select(most_values, 1.0), effort, with_clear=True)


def _measure_on_cores(case: PaillierCase, baselines: bool, effort: Effort) -> Measured:
    found, missing = paillier_baselines(case, effort) if baselines else ([], [])
    return measure_paillier([*own_paillier(case, effort), *found], effort), missing


def _installed(*peers: tuple[Peer, Callable[[], Sequence[Scheme]]]) -> tuple[list[Scheme], list[str]]:
    """Return the schemes of the libraries that are there, and how to install the others."""
    schemes: list[Scheme] = []
    missing: list[str] = []
    for peer, make in peers:
        try:
            schemes += make()
        except ModuleNotFoundError as error:
            if error.name not in peer.packages:
                raise
            missing.append(peer.how_to_install)
    return schemes, missing


def describe_machine() -> dict[str, Any]:
    """Return the machine and versions of a run, as plain JSON types.

    The load is the average before the run: 0 if nothing else was running.
    """
    facts = build_info()
    packages = {"tenseal": "tenseal", "phe": "phe", "gmpy2": "gmpy2", "heu": "sf-heu", "flwr": "flwr"}
    return machine_facts() | {
        "load_average": round(os.getloadavg()[0], 2),
        "paillier_engine": facts["paillier_engine"],
        "seal": facts["seal_version"],
        "gmp": facts["gmp_version"],
        **{name: _version(package) for name, package in packages.items()},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def parameter_sets(scheme: str) -> dict[str, Any]:
    """Return the parameters compared by default for one of ``UPDATE_SCHEMES``, by their names in tables.

    Equal sets of ``ckks`` share a name, and the first set is the default.
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
    """Return the compared parameters of Paillier: 24-bit values with 20 fraction bits, 64 clients."""
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

    Each repetition sums anew, which the protection against two totals of one round would stop. Its work, a
    digest of the total, is done and timed all the same.
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
    """Return our library under an authority's key, which schemes may share: Paillier's take seconds to make.

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
    """Some clients, and one authority or several with keys of all clients; all keys are random.

    An authority computes its answer and decides nothing. A real one also remembers its answers, which is not
    measured.
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
        """Return the only authority's answer: the sum of these clients' one-time secrets."""
        (answer,) = self.answers(request, participants, threads)
        return answer

    def answers(self, request: bytes, participants: list[int], threads: int) -> list[bytearray]:
        """Return each authority's answer; all of them together open the total that is asked for."""
        return [
            sum_key(self.public_key, request, [keys[client] for client in participants], threads=threads)
            for keys in self._keys_by_authority
        ]


def _enrolled_scheme(name: str, parameters: Any, threads: int) -> Scheme:
    """Return a scheme with two clients of a session, its aggregator, its authority and an opener."""
    session = EnrolledSession(parameters, clients=2)
    scheme, public_key = session.scheme, session.public_key
    first, other = (scheme.Encryptor(key, threads) for key in session.client_keys)
    # A sum holds a client once: sums begin with a frame of the first, all others are of the other.
    turns: Iterator[Any] = chain([first], repeat(other))

    def close(aggregator: Any) -> tuple[Any, bytes]:
        total = aggregator.total()
        return total, total.request()

    def answer(closed: tuple[Any, bytes]) -> tuple[Any, bytearray]:
        total, request = closed
        return total, session.answer(request, [client for client, _ in total.participants], threads)

    def open_answered(answered: tuple[Any, bytearray]) -> NDArray[np.float64]:
        """Parse, check and digest the total's frame, as its receiver must, and open it."""
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
