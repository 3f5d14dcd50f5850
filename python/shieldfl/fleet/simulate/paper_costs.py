"""The costs that the SenseCrypt paper reports, as a cost model: its library, its processors, its training.

The paper gives seconds for whole steps (appendix L, table 3: one client on CIFAR-10, one iteration; the model
is AlexNet by section 4.1, with 124,534 parameters by table 4) and not how many parameters they were spent on.
So the costs of a value follow from how many are encrypted under the masks that one assumes:

- **Encryption** takes 87.3 s on average. It is taken to be spread perfectly over a client's CPUs, so the core seconds
  of a value are 87.3 over the mean of values / CPUs. What appendix C says of figure 9 is less even: from 10 to 90 %
  encrypted a client with 6 CPUs grows less than 5 times, one with 1 CPU more than 10 times.
- **Decryption** takes 56.8 s on average in the paper's first form, at each client, of the union; the same way. In the
  form with a key authority, which is the one that is simulated, it is done once, on the 104 CPUs of its server.
- **Aggregation** takes 87.9 s, begins when the last update is there, and grows with union times clients: to add a plain
  number to a ciphertext is taken to cost as much as to add a ciphertext, which favours the methods that are compared.
- **Training** takes 7.4 s for 2,500 samples whatever CPUs a client has (7.1 s to 7.7 s over all), as if it ran on one
  of the server's GPUs, which the paper does not say.
- **Solving** takes 13.2 s, sensitivity 0.1 s, also whatever CPUs a client has. MaskCrypt ranks its scores in much less
  than that: its selection is taken to cost nothing, which favours it again.
- A **ciphertext** of a 2048-bit key has 512 bytes and holds one value, a plain value 4.

The paper's table 2 allows a check: 0.39 s for a value at 3072 bits, which is 0.12 s at 2048 bits if encryption grows
with the third power of the length. :data:`ENCRYPT_CORE_SECONDS_BY_TABLE_2` is that figure.
"""

from __future__ import annotations

from dataclasses import replace

from shieldfl.errors import ParameterError
from shieldfl.fleet.costs.cost_model import CostModel, SchemeCosts
from shieldfl.fleet.fleet import Aggregator, ClientKind, Fleet, Model
from shieldfl.fleet.simulate.encryption_plan import EncryptionPlan, MaskSettings, plan_encryption
from shieldfl.methods.discovery import named_method

__all__ = [
    "ENCRYPT_CORE_SECONDS_BY_TABLE_2",
    "PAPER_PARAMETERS",
    "paper_cost_model",
    "paper_costs",
    "paper_costs_for",
    "paper_fleet",
]

_CPUS_AND_MEGABYTES_PER_SECOND = ((24, 50), (16, 45), (12, 40), (10, 35), (8, 30))
_SERVER_CPUS = 104
_CIFAR_10 = MaskSettings(exposed_share=0.5, exposure_decay=2.0)

PAPER_PARAMETERS = 124_534

_TRAIN_SECONDS = 7.4
_TRAIN_SAMPLES = 2500
"""5 % of CIFAR-10 (section 4.1)."""
_SENSITIVITY_SECONDS = 0.1
_SOLVE_SECONDS = 13.2
_ENCRYPT_SECONDS = 87.3
_DECRYPT_SECONDS = 56.8
_AGGREGATE_SECONDS = 87.9
_CIPHERTEXT_BYTES = 512

ENCRYPT_CORE_SECONDS_BY_TABLE_2 = 3925.9769 / 10_000 * (2048 / 3072) ** 3


def paper_costs(fleet: Fleet, plan: EncryptionPlan) -> CostModel:
    """Return the paper's costs, given the fleet and SenseCrypt's plan that its table 3 is taken to be of.

    Raises ParameterError for a plan that encrypts nothing.
    """
    speed = fleet.cores * fleet.core_rate
    union = plan.union_values[plan.groups]
    encrypted_per_cpu = float((plan.values / speed).mean())
    if encrypted_per_cpu == 0.0:
        raise ParameterError("the paper's costs follow from a plan that encrypts something")
    scheme = SchemeCosts(
        name="python-paillier-2048",
        values_per_ciphertext=1,
        ciphertext_bytes=_CIPHERTEXT_BYTES,
        encrypt_seconds=_ENCRYPT_SECONDS / encrypted_per_cpu,
        # Aggregation is stated in the seconds of its server, all else in those of one CPU.
        add_seconds=_AGGREGATE_SECONDS / float(union.sum()) * _SERVER_CPUS,
        open_seconds=_DECRYPT_SECONDS / float((union / speed).mean()),
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
    """Return the paper's costs, of this fleet with masks of log-normal scores (C = 0.5 and B = 2, as for CIFAR-10).

    ``paper_costs_for`` has the costs of one method.
    """
    fleet = paper_fleet()
    # A plan needs to know only that a ciphertext holds one value and takes plain numbers; its costs are what follows.
    single = SchemeCosts("single values", 1, 1.0, encrypt_seconds=0.0, add_seconds=0.0, open_seconds=0.0)
    return paper_costs(fleet, plan_encryption("sense-crypt", fleet, single, _CIFAR_10))
