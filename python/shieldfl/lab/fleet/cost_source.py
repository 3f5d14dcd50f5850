"""Costs of several schemes, and where they come from: a device profile, or the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_model import (
    CostModel,
    DeviceProfile,
    EncryptionPlan,
    MaskSettings,
    SchemeProfile,
    load_profile,
    plan_encryption,
)
from shieldfl.lab.fleet.fleet import Aggregator, ClientKind, Fleet, Model
from shieldfl.learning import MODELS
from shieldfl.methods.registry import named_method

__all__ = ["CostSource", "paper_cost_model", "paper_costs", "paper_costs_for", "paper_fleet"]


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

ENCRYPT_CORE_SECONDS_BY_TABLE_2 = 3925.9769 / 10_000 * (2048 / 3072) ** 3


def paper_costs(fleet: Fleet, plan: EncryptionPlan) -> CostModel:
    """Return the paper's costs, given the fleet and SenseCrypt's plan that its table 3 is taken to be of."""
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


def paper_costs_for(method: str, costs: CostModel) -> CostModel:
    """Return the paper's costs for one method: only SenseCrypt's budgets are an optimisation problem to solve."""
    return costs if named_method(method).masks == "budgets" else replace(costs, select_seconds_per_value=0.0)


def paper_fleet() -> Fleet:
    """Return SenseCrypt's fleet with system heterogeneity (section 4.1): four clients of each of five kinds."""
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
    """Return the paper's costs, of this fleet with masks of log-normal scores (C = 0.5 and B = 2, as for CIFAR-10)."""
    fleet = paper_fleet()
    # A plan needs to know only that a ciphertext holds one value and takes plain numbers; its costs are what follows.
    single = SchemeProfile("single values", "", 1, 1.0, {1: 0.0}, 0.0, 0.0, adds_clear_values=True)
    return paper_costs(fleet, plan_encryption("sense-crypt", fleet, single, _CIFAR_10))


_PAPER_MODEL = "AlexNet"


@dataclass(frozen=True)
class CostSource:
    """Cost models by the name of their scheme, and whose they are."""

    models: dict[str, CostModel]
    profile: DeviceProfile | None
    """None for the paper's costs."""
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
        source = cls({name: _with_clients(profile.cost_model(name), own) for name in schemes}, profile, own)
        source.check(fleets)
        return source

    def for_method(self, method: str, scheme: str) -> CostModel:
        model = self.models[scheme]
        return paper_costs_for(method, model) if self.profile is None else model

    def check(self, fleets: Sequence[Fleet]) -> None:
        """Refuse a fleet that trains another model than these costs are of, unless it states what training takes."""
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
                "training is counted as taking no time. State train_core_seconds_per_sample in the fleet file, or "
                "calibrate with --model."
            )
        else:
            said = (
                f"training takes what {measured.name} with {measured.parameters:,} parameters took, another number "
                "than the fleet's model has."
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


def _with_clients(base: CostModel, profiles: Mapping[str, DeviceProfile]) -> CostModel:
    scheme, clients = base.scheme, {}
    for path, profile in profiles.items():
        if scheme.name not in profile.scheme_names:
            raise ParameterError(
                f"the device profile {path}, which a client names, lacks {scheme.name}: calibrate it there, or leave "
                "it out by --scheme"
            )
        clients[path] = own = profile.cost_model(scheme.name)
        if (own.scheme.values_per_ciphertext, own.scheme.ciphertext_bytes) != (
            scheme.values_per_ciphertext,
            scheme.ciphertext_bytes,
        ):
            raise ParameterError(
                f"the device profile {path} has {scheme.name} with other parameters: calibrate both alike"
            )
    return replace(base, clients=clients)
