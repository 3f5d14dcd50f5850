"""Costs of a round: what clients encrypt by method, the seconds and bytes of each step, and their source.

Costs come from a device profile, or from the paper. No model is trained here: a curve stands for its scores,
and gives the masks that SenseCrypt's constraints ask for.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, get_args

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike

from shieldfl.encryption.registry import POOLED
from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.fleet.fleet import Aggregator, ClientKind, Fleet, FloatVector, IntVector, Model
from shieldfl.learning import MODELS
from shieldfl.masks import sense_crypt_budgets
from shieldfl.methods.registry import named_method
from shieldfl.rounds.method import Masks, NamedMethod
from shieldfl.settings import NotNegative, Positive, Probability, Settings, Share, about, read_text

__all__ = ["CostSource", "paper_cost_model", "paper_costs", "paper_fleet"]


BYTES_PER_CLEAR_VALUE = 4  # float32
FORMAT = "shieldfl-device-profile"
VERSION = 4
_SLOWER = 1.05  # more than what measured times differ by

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0.0, le=sys.float_info.max)]
MaybeSeconds = Annotated[float, Meta(ge=0.0, le=sys.float_info.max)]
SecondsByThreads = dict[Count, Seconds]


@dataclass(frozen=True)
class SchemeProfile:
    """One scheme at one setting: seconds of a ciphertext, encryption by number of threads, else with one."""

    name: str
    setting: str
    values_per_ciphertext: Count
    ciphertext_bytes: Seconds
    encrypt_seconds: SecondsByThreads
    add_seconds: Seconds
    open_seconds: Seconds
    adds_clear_values: bool
    """Whether plain numbers can be added to ciphertexts.

    If not, clients with different masks all encrypt the union of their masks.
    """
    answer_seconds: MaybeSeconds = 0.0  # of a request to the key authority, and its answer
    answer_seconds_per_client: MaybeSeconds = 0.0  # in the total, in addition
    clients_open: bool = False  # with that answer
    pool_seconds: SecondsByThreads = field(default_factory=dict)
    """Seconds to make the randomiser of a ciphertext ahead, by number of threads; empty without a pool.

    A round pays for it only beyond the client's idle time.
    """

    @property
    def serial_share(self) -> float:
        """Share of encryption, and of opening at clients, that more threads do not shorten (Amdahl)."""
        return serial_share(self.encrypt_seconds)

    def ciphertexts(self, values: Any) -> FloatVector:
        return np.ceil(np.asarray(values, dtype=np.float64) / self.values_per_ciphertext)


def _by_profile(seconds: Callable[..., FloatVector]) -> Callable[..., FloatVector]:
    """Take each client's seconds from the costs of its own profile, or else from the model's."""

    @wraps(seconds)
    def chosen(costs: CostModel, fleet: Fleet, *arguments: Any) -> FloatVector:
        found = seconds(costs, fleet, *arguments)
        for path in dict.fromkeys(kind.profile for kind in fleet.kinds if kind.profile):
            if path not in costs.clients:
                raise ParameterError(
                    f"the costs of the device profile {path}, which a client names, were not given"
                )
            own = np.repeat([kind.profile == path for kind in fleet.kinds], fleet.counts)
            found = np.where(own, seconds(costs.clients[path], fleet, *arguments), found)
        return found

    return chosen


@dataclass(frozen=True)
class CostModel:
    """Costs of rounds under a scheme; vectors have each client's seconds, on its own cores."""

    scheme: SchemeProfile
    train_seconds_per_sample: float
    score_seconds_per_value: float = 0.0
    select_seconds_per_value: float = 0.0
    add_clear_seconds_per_value: float = 0.0
    train_serial_share: float = 0.0
    trains_on_accelerator: bool = False  # which also scores and selects, for any processor of a client
    clients: Mapping[str, CostModel] = field(default_factory=dict, hash=False)
    """Costs of clients with their own device profile, by ``ClientKind.profile``."""
    adds_on_arrival: bool = True  # and not only after the last update

    @_by_profile
    def train_seconds(self, fleet: Fleet) -> FloatVector:
        stated = fleet.model.train_core_seconds_per_sample
        per_sample = self.train_seconds_per_sample if stated is None else stated
        work = fleet.samples * (per_sample * fleet.training.local_epochs)
        return self._on_device(work, fleet, self.train_serial_share)

    @_by_profile
    def selection_seconds(self, fleet: Fleet) -> FloatVector:
        """Return each client's seconds of scoring, and of selecting, (2, K)."""
        each = np.array([[self.score_seconds_per_value], [self.select_seconds_per_value]])
        return self._on_device(np.repeat(each * fleet.model.parameters, fleet.size, axis=1), fleet)

    def encrypt_seconds(self, fleet: Fleet, fields: Any) -> FloatVector:
        """Return each client's seconds on all its cores; randomisers count only beyond its idle time."""
        left: FloatVector = np.maximum(self.pool_seconds(fleet, fields) - fleet.idle_seconds, 0.0)
        return self._encrypt_alone(fleet, fields) + left

    @_by_profile
    def _encrypt_alone(self, fleet: Fleet, fields: Any) -> FloatVector:
        work = self.scheme.ciphertexts(fields) * self.scheme.encrypt_seconds[1]
        return _on_cores(work, fleet, self.scheme.serial_share)

    @_by_profile
    def pool_seconds(self, fleet: Fleet, fields: Any) -> FloatVector:
        """Return the seconds of making randomisers, whether idle or not; 0 for schemes without a pool."""
        pool = self.scheme.pool_seconds or {1: 0.0}
        work = self.scheme.ciphertexts(fields) * pool[1]
        return _on_cores(work, fleet, serial_share(pool))

    @_by_profile
    def client_open_seconds(self, fleet: Fleet, union_values: Any) -> FloatVector:
        work = self.scheme.ciphertexts(union_values) * self.scheme.open_seconds * self.scheme.clients_open
        return _on_cores(work, fleet, self.scheme.serial_share)

    def upload_bytes(self, fleet: Fleet, values: Any, fields: Any, sends_mask: bool) -> FloatVector:
        """Return the bytes up: ciphertexts with ``values`` in ``fields``, clear parameters, and the mask."""
        sent = self.scheme.ciphertexts(fields) * self.scheme.ciphertext_bytes
        sent += BYTES_PER_CLEAR_VALUE * (fleet.model.parameters - np.asarray(values, dtype=np.float64))
        return sent + (math.ceil(fleet.model.parameters / 8) if sends_mask else 0)

    def download_bytes(self, fleet: Fleet, union_values: Any) -> FloatVector:
        """Return the bytes down: the clear model or, where clients open, the total with so many values."""
        clear = fleet.model.parameters - (np.asarray(union_values) if self.scheme.clients_open else 0)
        opened = self.scheme.ciphertext_bytes * self.scheme.clients_open
        total = self.scheme.ciphertexts(union_values) * opened
        return np.broadcast_to(total + float(BYTES_PER_CLEAR_VALUE) * clear, (fleet.size,))

    def add_seconds(self, fleet: Fleet, values: Any) -> FloatVector:
        """Return the aggregator's seconds, on all of its cores, for an update encrypted in ``values``."""
        encrypted = np.asarray(values, dtype=np.float64)
        work = self.scheme.ciphertexts(encrypted) * self.scheme.add_seconds
        work += (fleet.model.parameters - encrypted) * self.add_clear_seconds_per_value
        return work / fleet.aggregator.cores

    def open_seconds(self, fleet: Fleet, values: Any, clients: Any) -> FloatVector:
        """Return the key authority's seconds for a total, on as many cores as the aggregator's.

        The authority opens the total or, if clients open, answers for the ``clients`` in it.
        """
        one = self.scheme.answer_seconds + np.asarray(clients) * self.scheme.answer_seconds_per_client
        one = one + (0.0 if self.scheme.clients_open else self.scheme.open_seconds)
        return self.scheme.ciphertexts(values) * one / fleet.aggregator.cores

    def _on_device(self, work: FloatVector, fleet: Fleet, serial: float = 1.0) -> FloatVector:
        return work if self.trains_on_accelerator else _on_cores(work, fleet, serial)


def _on_cores(work: FloatVector, fleet: Fleet, serial: float) -> FloatVector:
    return work / (fleet.core_rate * speedup(fleet.cores, serial))


def speedup(cores: Any, serial: float) -> FloatVector:
    """Return how many times faster ``cores`` cores are than one: Amdahl's law; below one core, its share."""
    count = np.asarray(cores, dtype=np.float64)
    more: FloatVector = 1.0 / (serial + (1.0 - serial) / np.maximum(count, 1.0))
    return np.minimum(count, more)


def serial_share(seconds_by_threads: dict[int, float]) -> float:
    """Fit the share, in [0, 1], of work that more threads do not shorten: least squares on measured times."""
    alone = seconds_by_threads[1]
    threads = np.array([count for count in seconds_by_threads if count > 1], dtype=np.float64)
    if not threads.size:
        return 0.0
    # seconds / alone = 1/n + serial * (1 - 1/n)
    room = 1.0 - 1.0 / threads
    above = np.array([seconds_by_threads[int(count)] / alone for count in threads]) - 1.0 / threads
    return float(np.clip(room @ above / (room @ room), 0.0, 1.0))


@dataclass(frozen=True)
class ModelProfile:
    """The training step of one model: seconds of a sample in one epoch, by number of threads."""

    name: str
    sample_shape: tuple[Count, ...]
    parameters: Count
    train_seconds_per_sample: SecondsByThreads


@dataclass(frozen=True)
class DeviceProfile:
    """Everything that was measured on one machine."""

    machine: dict[str, Any]
    schemes: tuple[SchemeProfile, ...]
    score_seconds_per_value: Seconds
    select_seconds_per_value: Seconds
    add_clear_seconds_per_value: Seconds
    model: ModelProfile | None = None

    @property
    def notes(self) -> list[str]:
        """Lines about steps that more threads make slower."""
        tables = {f"{one.name} encrypts": one.encrypt_seconds for one in self.schemes}
        if self.model is not None:
            tables[f"{self.model.name} trains"] = self.model.train_seconds_per_sample
        return [
            f"{what} {seconds[more] / seconds[fewer]:.2f} times as slowly with {more} threads as with "
            f"{fewer}. Calibrate again while nothing else runs; if that does not help, give clients of this "
            "kind fewer cores."
            for what, seconds in tables.items()
            for fewer, more in pairwise(sorted(seconds))
            if seconds[more] > _SLOWER * seconds[fewer]
        ]

    def __post_init__(self) -> None:
        names = [scheme.name for scheme in self.schemes]
        if not names or len(set(names)) < len(names):
            raise ParameterError("a device profile needs schemes, each of them once")
        tables = [] if self.model is None else [self.model.train_seconds_per_sample]
        for scheme in self.schemes:
            pooled = scheme.pool_seconds or scheme.name.endswith(POOLED)
            tables += [scheme.encrypt_seconds, *([scheme.pool_seconds] if pooled else [])]
        if any(1 not in table for table in tables):
            raise ParameterError("encryption and training must have been measured with one thread")

    @property
    def scheme_names(self) -> tuple[str, ...]:
        return tuple(scheme.name for scheme in self.schemes)

    def cost_model(self, scheme: str) -> CostModel:
        """Return the costs of rounds under a scheme; training is free where no model was measured.

        Raises ParameterError for a scheme that was not measured.
        """
        measured = [one for one in self.schemes if one.name == scheme]
        if not measured:
            raise ParameterError(f"{scheme!r} was not measured: choose one of {', '.join(self.scheme_names)}")
        per_sample = {1: 0.0} if self.model is None else self.model.train_seconds_per_sample
        return CostModel(
            scheme=measured[0],
            train_seconds_per_sample=per_sample[1],
            score_seconds_per_value=self.score_seconds_per_value,
            select_seconds_per_value=self.select_seconds_per_value,
            add_clear_seconds_per_value=self.add_clear_seconds_per_value,
            train_serial_share=0.0 if self.model is None else serial_share(per_sample),
        )

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **msgspec.json.decode(msgspec.json.encode(self))}

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, document: Any) -> DeviceProfile:
        """Read what :meth:`to_json` returned. Raises DataError."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise DataError("this is no device profile: make one with shieldfl profile calibrate")
        if document.get("version") != VERSION:
            raise DataError(f"the device profile comes from another version than {VERSION}: calibrate again")
        stated = {key: value for key, value in document.items() if key not in ("format", "version")}
        try:
            profile = msgspec.convert(stated, cls, str_keys=True)
        except (ParameterError, msgspec.ValidationError) as error:
            raise DataError(f"the device profile is damaged: {error}") from error
        if profile.to_json() != document:
            raise DataError("the device profile is damaged: it lacks keys or has unknown ones")
        return profile


def load_profile(path: str | Path) -> DeviceProfile:
    text = read_text(path, "device profile")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the device profile {path} is no JSON: give the path of its file") from error
    return DeviceProfile.from_json(document)


# Points of the grid of a curve, which is fine where few positions hold much.
_POINTS = 2049
_SMALLEST_SHARE = 1e-6


@dataclass(frozen=True)
class SensitivityCurve:
    """Cumulated share of the sensitivity by share of positions, most sensitive first; both from 0 to 1."""

    position_shares: tuple[float, ...]
    sensitivity_shares: tuple[float, ...]

    @classmethod
    def log_normal(cls, deviation: float = 2.0) -> SensitivityCurve:
        """Return the curve of log-normal scores.

        ``deviation`` is that of the natural logarithm, 0 for equal scores.

        The share of the top q is Phi(deviation - z) with Phi(z) = 1 - q.
        """
        normal, fine = NormalDist(), np.geomspace(_SMALLEST_SHARE, 1.0, _POINTS - 1)
        at = np.concatenate(([0.0], fine[:-1], [1.0]))
        inner = [normal.cdf(deviation - normal.inv_cdf(1.0 - share)) for share in at[1:-1].tolist()]
        return cls(tuple(at.tolist()), (0.0, *inner, 1.0))

    def least_ratio(self, sensitivity_share: ArrayLike) -> FloatVector:
        """Return the smallest share of positions that holds these shares of the sensitivity."""
        # Each sensitivity share once, with the fewest positions that reach it.
        held, first = np.unique(np.asarray(self.sensitivity_shares), return_index=True)
        wanted = np.asarray(sensitivity_share, dtype=np.float64)
        ratios: FloatVector = np.interp(wanted, held, np.asarray(self.position_shares)[first])
        return ratios

    def best_ratio(self, cost_weight: float = 1.0) -> float:
        """Return the share of positions whose gain exceeds their cost: the choice of eq. 9, unconstrained."""
        widths, gains = np.diff(self.position_shares), np.diff(self.sensitivity_shares)
        return float(widths[gains > cost_weight * widths].sum())


@dataclass(frozen=True)
class MaskSettings(Settings):
    """What decides the sizes of masks.

    A client must encrypt the share 1 - C exp(-B alpha) of the sensitivity (SenseCrypt, eq. 7). The defaults
    of C and B are the paper's for FMNIST; for CIFAR-10 it has C = 0.5 and B = 2 (section 4.1).
    """

    exposed_share: Annotated[
        Probability,
        about(
            "sense-crypt: share of the sensitivity that a client with budget 0 may leave unencrypted "
            "(eq. 7).",
            symbol="C",
        ),
    ] = 0.7
    exposure_decay: Annotated[
        NotNegative, about("sense-crypt: decay rate of that share as the budget grows (eq. 7).", symbol="B")
    ] = 1.3
    uniform_ratio: Annotated[
        Share | None,
        about(
            "Share of the parameters that mask-crypt and fedml-he encrypt at every client. Default: the "
            "share in the union of sense-crypt's masks over the whole fleet, as in its paper's "
            "comparison (section 4.2)."
        ),
    ] = None
    mask_overlap: Annotated[
        Probability,
        about(
            "Size of the union of sense-crypt's masks, between that of independent masks (0) and that of "
            "the largest mask alone (1: nested masks, which equal scores give)."
        ),
    ] = 0.5
    """Overlap of masks; clients with equal splits of MNIST and CIFAR-10 show 0.5 to 0.7.

    Measured by bench/experiments/heterogeneity.py. See also :func:`packed_fields`.
    """
    cost_weight: Annotated[
        Positive,
        about(
            "sense-crypt: weight of a position's cost against its protection (eq. 9). inf encrypts as "
            "little as the constraints allow.",
            symbol="beta_1 / beta_2",
            words={"inf": math.inf},
        ),
    ] = 1.0
    curve: SensitivityCurve = field(default_factory=SensitivityCurve.log_normal)

    def mask_ratios(self, budgets: FloatVector) -> tuple[FloatVector, FloatVector]:
        """Return the share of positions each client encrypts, and by how much its budget, alpha, falls short.

        The share is the best one (eq. 9), raised to what security asks for (eq. 7), up to the budget (eq. 6).
        """
        floors = 1.0 - self.exposed_share * np.exp(-self.exposure_decay * budgets)
        needed = self.curve.least_ratio(floors)
        wanted = np.maximum(needed, self.curve.best_ratio(self.cost_weight))
        return np.minimum(wanted, budgets), np.maximum(needed - budgets, 0.0)


@dataclass(frozen=True)
class EncryptionPlan:
    """What each client encrypts in a round, and which steps it takes for it."""

    method: str
    values: IntVector  # encrypted by each client, (K,)
    fields: IntVector
    """Fields in each client's ciphertexts, (K,): its values, and zeros where only others selected."""
    groups: IntVector  # which clients are summed together, from 0, (K,)
    union_values: IntVector  # positions in which a group's total is encrypted, (G,)
    scores: bool
    selects: bool
    sends_mask: bool
    budget_shortfall: FloatVector  # by how much each client's budget is below what its constraints ask for


def simulated_method(name: str) -> NamedMethod:
    """Return what a method's class states.

    Raises ParameterError if it does not state how much its clients encrypt.
    """
    stated = named_method(name)
    if stated.masks not in get_args(Masks):
        raise ParameterError(
            f"{name} cannot be simulated: its class does not say how much clients encrypt, one of "
            f"{', '.join(get_args(Masks))}"
        )
    return stated


def plan_encryption(
    method: str, fleet: Fleet, scheme: SchemeProfile, settings: MaskSettings | None = None
) -> EncryptionPlan:
    """Return what each client of a fleet encrypts under a method, by the ``masks`` that its class states.

    Budgets are SenseCrypt's (section 3.2), with masks (eqs. 6 to 9) for each cluster. Clients of a scheme
    whose ciphertexts take no plain numbers encrypt their cluster's union instead. Under other methods all
    clients encrypt one share, of a mask that they agree on. Raises ParameterError as :func:`simulated_method`
    does.
    """
    stated = simulated_method(method)
    chosen = settings or MaskSettings()
    parameters = fleet.model.parameters
    if stated.masks == "budgets":
        ratios, shortfall = chosen.mask_ratios(fleet_budgets(fleet))
        groups, union_values = fleet.clusters, _positions(_unions(fleet, ratios, chosen), parameters)
        values = _positions(ratios, parameters) if scheme.adds_clear_values else union_values[groups]
        fields = packed_fields(values, union_values[groups], scheme, chosen.mask_overlap)
    else:
        if stated.masks in ("nothing", "everything"):
            share = 1.0 if stated.masks == "everything" else 0.0
        elif chosen.uniform_ratio is not None:
            share = chosen.uniform_ratio
        else:
            share = float(_unions(fleet, chosen.mask_ratios(fleet_budgets(fleet))[0], chosen).max())
        union_values = np.atleast_1d(_positions(share, parameters))
        values = fields = np.full(fleet.size, union_values[0])
        groups, shortfall = np.zeros(fleet.size, dtype=np.int64), np.zeros(fleet.size)
    each = stated.masks_each_round
    return EncryptionPlan(method, values, fields, groups, union_values, each, each, each, shortfall)


def fleet_budgets(fleet: Fleet) -> FloatVector:
    """Return alpha of each client.

    Clients upload ciphertexts (Algorithm 3), so the uplink is the bandwidth that counts.
    """
    return sense_crypt_budgets(fleet.upload_bytes_per_second, fleet.cores * fleet.core_rate, fleet.clusters)


def union_ratio(ratios: FloatVector, overlap: float) -> float:
    independent = 1.0 - float(np.prod(1.0 - ratios))
    return overlap * float(ratios.max()) + (1.0 - overlap) * independent


def packed_fields(values: IntVector, unions: IntVector, scheme: SchemeProfile, overlap: float) -> IntVector:
    """Estimate the fields of the ciphertexts that clients send when they pack in the order of their union.

    A share ``overlap`` of a client's values is taken to come first, the others to lie at random in the rest.
    """
    first = overlap * values
    rest = unions - first
    chance = np.divide(values - first, rest, out=np.zeros(values.size), where=rest > 0.0)
    hit = 1.0 - (1.0 - np.minimum(chance, 1.0)) ** scheme.values_per_ciphertext
    fields: IntVector = np.ceil(first + rest * hit - 1e-6).astype(np.int64)
    return np.clip(fields, values, unions)


def _unions(fleet: Fleet, ratios: FloatVector, settings: MaskSettings) -> FloatVector:
    clusters = range(len(fleet.cluster_names))
    return np.array([union_ratio(ratios[fleet.clusters == one], settings.mask_overlap) for one in clusters])


def _positions(shares: float | FloatVector, parameters: int) -> IntVector:
    # Rounded up, so that a mask holds the share that is asked for; the epsilon takes back rounding alone.
    whole: IntVector = np.ceil(np.asarray(shares) * parameters - 1e-6).astype(np.int64)
    return np.clip(whole, 0, parameters)


_CPUS_AND_MEGABYTES_PER_SECOND = ((24, 50), (16, 45), (12, 40), (10, 35), (8, 30))
_SERVER_CPUS = 104
_CIFAR_10 = MaskSettings(exposed_share=0.5, exposure_decay=2.0)

PAPER_PARAMETERS = 124_534

_TRAIN_SECONDS = 7.4
_TRAIN_SAMPLES = 2500  # 5 % of CIFAR-10 (section 4.1)
_SENSITIVITY_SECONDS = 0.1
_SOLVE_SECONDS = 13.2
_ENCRYPT_SECONDS = 87.3
_DECRYPT_SECONDS = 56.8
_AGGREGATE_SECONDS = 87.9
_CIPHERTEXT_BYTES = 512


def paper_costs(fleet: Fleet, plan: EncryptionPlan) -> CostModel:
    """Return the paper's costs, given the fleet and the SenseCrypt plan that its table 3 is taken to use."""
    speed = fleet.cores * fleet.core_rate
    union = plan.union_values[plan.groups]
    encrypted_per_cpu = float((plan.values / speed).mean())
    if encrypted_per_cpu == 0.0:
        raise ParameterError("the paper's costs follow from a plan that encrypts something")
    scheme = SchemeProfile(
        name="python-paillier-2048",
        setting="of the paper",
        values_per_ciphertext=1,
        ciphertext_bytes=_CIPHERTEXT_BYTES,
        encrypt_seconds={1: _ENCRYPT_SECONDS / encrypted_per_cpu},
        # Aggregation is stated in the seconds of its server, all else in those of one CPU.
        add_seconds=_AGGREGATE_SECONDS / float(union.sum()) * _SERVER_CPUS,
        open_seconds=_DECRYPT_SECONDS / float((union / speed).mean()),
        adds_clear_values=True,
    )
    return CostModel(
        scheme=scheme,
        train_seconds_per_sample=_TRAIN_SECONDS / _TRAIN_SAMPLES,
        score_seconds_per_value=_SENSITIVITY_SECONDS / PAPER_PARAMETERS,
        select_seconds_per_value=_SOLVE_SECONDS / PAPER_PARAMETERS,
        trains_on_accelerator=True,
        adds_on_arrival=False,
    )


def paper_fleet() -> Fleet:
    """Return SenseCrypt's fleet with system heterogeneity (section 4.1): five kinds, four clients of each."""
    return Fleet(
        name="system heterogeneity",
        model=Model(PAPER_PARAMETERS, "AlexNet"),
        kinds=tuple(
            ClientKind(
                name=f"{cpus} CPUs",
                cores=float(cpus),
                samples=_TRAIN_SAMPLES,
                upload_bytes_per_second=megabytes * 1e6,
                download_bytes_per_second=megabytes * 1e6,
                count=4,
            )
            for cpus, megabytes in _CPUS_AND_MEGABYTES_PER_SECOND
        ),
        aggregator=Aggregator(float(_SERVER_CPUS)),
    )


def paper_cost_model() -> CostModel:
    """Return the paper's costs of this fleet with masks of log-normal scores (C = 0.5, B = 2: CIFAR-10)."""
    fleet = paper_fleet()
    # The plan needs only a ciphertext that holds one value and takes plain numbers; costs follow from it.
    single = SchemeProfile("single values", "", 1, 1.0, {1: 0.0}, 0.0, 0.0, adds_clear_values=True)
    return paper_costs(fleet, plan_encryption("sense-crypt", fleet, single, _CIFAR_10))


_PAPER_MODEL = "AlexNet"


@dataclass(frozen=True)
class CostSource:
    """Cost models by the name of their scheme, and where they come from."""

    models: dict[str, CostModel]
    profile: DeviceProfile | None
    """Device profile that the costs are from; None for the paper's costs."""
    of_clients: Mapping[str, DeviceProfile] = field(default_factory=dict)

    @classmethod
    def of_paper(cls, fleets: Sequence[Fleet]) -> CostSource:
        """Take the paper's costs. Raises ParameterError for fleets that they do not suit."""
        if any(kind.profile for fleet in fleets for kind in fleet.kinds):
            raise ParameterError("a client names a device profile, and the paper's costs have no use for one")
        model = paper_cost_model()
        source = cls({model.scheme.name: model}, None)
        source.check(fleets)
        return source

    @classmethod
    def of_profile(
        cls, profile: DeviceProfile, schemes: Sequence[str], fleets: Sequence[Fleet]
    ) -> CostSource:
        """Take the costs of some of a profile's schemes, and those of the profiles that clients name."""
        paths = dict.fromkeys(kind.profile for fleet in fleets for kind in fleet.kinds if kind.profile)
        own = {path: load_profile(path) for path in paths}
        models = {}
        for name in schemes:
            base, clients = profile.cost_model(name), {}
            for path, other in own.items():
                if name not in other.scheme_names:
                    raise ParameterError(
                        f"the device profile {path}, which a client names, lacks {name}: calibrate it there, "
                        "or leave it out by --scheme"
                    )
                clients[path] = other.cost_model(name)
                shapes = [
                    (one.scheme.values_per_ciphertext, one.scheme.ciphertext_bytes)
                    for one in (base, clients[path])
                ]
                if shapes[0] != shapes[1]:
                    raise ParameterError(
                        f"the device profile {path} has {name} with other parameters: calibrate both alike"
                    )
            models[name] = replace(base, clients=clients)
        source = cls(models, profile, own)
        source.check(fleets)
        return source

    def for_method(self, method: str, scheme: str) -> CostModel:
        """Return the costs of a scheme under a method.

        Of the paper's methods, only SenseCrypt's budgets need an optimisation.
        """
        model = self.models[scheme]
        solves = self.profile is not None or named_method(method).masks == "budgets"
        return model if solves else replace(model, select_seconds_per_value=0.0)

    def check(self, fleets: Sequence[Fleet]) -> None:
        """Refuse a fleet with a model that these costs do not cover, unless it states its training time."""
        for fleet in fleets:
            name = fleet.model.name
            if name is None or fleet.model.train_core_seconds_per_sample is not None:
                continue
            measured = None if self.profile is None else self.profile.model
            known = (
                (_PAPER_MODEL,) if self.profile is None else MODELS if measured is None else (measured.name,)
            )
            if name not in known:
                raise ParameterError(
                    f"{fleet.name}: these costs have no training step of the model {name!r}, only of "
                    f"{', '.join(known)}: calibrate with --model, one of {', '.join(MODELS)}, or state "
                    "train_core_seconds_per_sample in the fleet file"
                )

    def describe(self) -> str:
        if self.profile is None:
            return "costs: those that the SenseCrypt paper reports"
        return f"costs: device profile{_of(self.profile)}"

    def to_json(self) -> dict[str, Any]:
        profile = self.profile
        return {
            "source": "paper" if profile is None else "device profile",
            "machine": None if profile is None else profile.machine,
            "schemes": list(self.models),
        }

    def notes(self, fleets: Sequence[Fleet]) -> list[str]:
        if self.profile is None:
            return []
        measured = self.profile.model
        if measured is None:
            said = (
                "training is counted as taking no time. State train_core_seconds_per_sample in the fleet "
                "file, or calibrate with --model."
            )
        else:
            said = (
                f"training takes what {measured.name} with {measured.parameters:,} parameters took, another "
                "number than the fleet's model has."
            )
        doubtful = [
            fleet.name
            for fleet in fleets
            if fleet.model.train_core_seconds_per_sample is None
            and (measured is None or fleet.model.parameters != measured.parameters)
        ]
        return [f"{', '.join(doubtful)}: {said}"] * bool(doubtful) + [
            f"{fleet.name}: {kind.name} has its own device profile{_of(self.of_clients[kind.profile])}."
            for fleet in fleets
            for kind in fleet.kinds
            if kind.profile in self.of_clients
        ]


def _of(profile: DeviceProfile) -> str:
    known = [str(profile.machine[key]) for key in ("processor", "date") if profile.machine.get(key)]
    return f"{' of ' if known else ''}{', '.join(known)}"
