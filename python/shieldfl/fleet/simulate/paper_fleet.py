"""The fleet that the paper's table 3 is taken to be of, and the costs that follow from it for any other fleet."""

from __future__ import annotations

from shieldfl.fleet.costs.cost_model import CostModel, SchemeCosts
from shieldfl.fleet.fleet import Aggregator, ClientKind, Fleet, Model
from shieldfl.fleet.simulate.encryption_plan import MaskSettings, plan_encryption
from shieldfl.fleet.simulate.paper_costs import PAPER_PARAMETERS, paper_costs
from shieldfl.fleet.simulate.sensitivity_curve import SecurityFloor

__all__ = ["paper_cost_model", "paper_fleet"]

_CPUS_AND_MEGABYTES_PER_SECOND = ((24, 50), (16, 45), (12, 40), (10, 35), (8, 30))
_SAMPLES = 2500
_SERVER_CPUS = 104
_CIFAR_10_FLOOR = SecurityFloor(exposed_share=0.5, exposure_decay=2.0)


def paper_fleet() -> Fleet:
    """Return SenseCrypt's fleet with system heterogeneity (section 4.1): four clients of each of five kinds."""
    return Fleet(
        name="system heterogeneity",
        model=Model(PAPER_PARAMETERS, "AlexNet"),
        kinds=tuple(
            ClientKind(
                name=f"{cpus} CPUs",
                cores=float(cpus),
                samples=_SAMPLES,
                upload_bytes_per_second=megabytes * 1e6,
                download_bytes_per_second=megabytes * 1e6,
                count=4,
            )
            for cpus, megabytes in _CPUS_AND_MEGABYTES_PER_SECOND
        ),
        aggregator=Aggregator(float(_SERVER_CPUS)),
    )


def paper_cost_model() -> CostModel:
    """Return the paper's costs, of this fleet with masks of log-normal scores (C = 0.5 and B = 2, as for CIFAR-10).

    See :mod:`shieldfl.fleet.simulate.paper_costs` for what is assumed; ``paper_costs_for`` has the costs of one method.
    """
    fleet = paper_fleet()
    # A plan needs to know only that a ciphertext holds one value and takes plain numbers; its costs are what follows.
    single = SchemeCosts("single values", 1, 1.0, encrypt_seconds=0.0, add_seconds=0.0, open_seconds=0.0)
    return paper_costs(
        fleet, plan_encryption("sense-crypt", fleet, single, MaskSettings(floor=_CIFAR_10_FLOOR))
    )
