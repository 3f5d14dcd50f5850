"""Import paths of before, each of which gives the module that has taken the names of the old one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import cast

__all__: list[str] = []

_MOVED = {
    "audit": "lab.audit",
    "audit.federation_attack": "lab.audit.attack",
    "authority.granted_keys": "authority.total_opener",
    "authority.sum_key_authority": "authority.key_authority",
    "authority_service.session_request": "authority_service.served_session",
    "authority_service.several_authorities": "authority_service.authority_client",
    "ckks": "encryption.ckks",
    "fleet": "lab.fleet",
    "fleet.fleet_file": "lab.fleet.fleet",
    "fleet.simulate": "lab.fleet",
    "fleet.simulate.paper_costs": "lab.fleet.cost_source",
    "fleet.simulate.planner": "lab.fleet.round_simulation",
    "kahe": "encryption.kahe",
    "lab.fleet.planner": "lab.fleet.round_simulation",
    "lab.simulation.partition": "lab.simulation.data",
    "learning.sgd": "learning.local_trainer",
    "methods.alt_fl.settings": "methods.alt_fl",
    "methods.batch_crypt.method": "methods.batch_crypt",
    "methods.dict_pfl.pruning": "methods.dict_pfl.method",
    "methods.dict_pfl.settings": "methods.dict_pfl.method",
    "methods.distributed_noise": "methods.full_encryption",
    "methods.distributed_noise.settings": "methods.full_encryption",
    "methods.encrypted_sum": "methods",
    "methods.encrypted_sum.encryption_settings": "methods.encryption_settings",
    "methods.encrypted_sum.mixed_upload": "methods.encrypted_update",
    "methods.model_adaptation": "methods.registry",
    "methods.noised_average": "methods.fedavg",
    "methods.noised_average.settings": "methods.fedavg",
    "methods.protocol": "rounds",
    "methods.protocol.global_model": "rounds.plan",
    "methods.protocol.named_method": "rounds.method",
    "methods.selective_shield.settings": "methods.selective_shield.method",
    "methods.sense_crypt.settings": "methods.sense_crypt.method",
    "methods.settings": "methods.registry",
    "pads": "encryption.pads",
    "paillier": "encryption.paillier",
    "privacy.hidden_participation": "privacy.accountant",
    "roles": "authority",
    "roles.answer_opener": "authority.total_opener",
    "roles.sum_key_authority": "authority.key_authority",
    "rounds.global_model": "rounds.plan",
    "rounds.named_method": "rounds.method",
    "scheme": "encryption",
    "selection": "masks",
    "simulation": "lab.simulation",
    "torch": "models",
    "torch_bridge": "models.torch_bridge",
    "training": "learning",
    "training.models": "learning.networks",
    "training.sgd": "learning.local_trainer",
}
"""New module paths below ``shieldfl``, by old path. A module below an old path is below its new path."""


def _place_of(name: str) -> str | None:
    package, _, path = name.partition(".")
    if package != __package__:
        return None
    head, rest = path, ""
    while head and head not in _MOVED:
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}"
    return f"{package}.{_MOVED[head]}{rest}" if head else None


class _Moved(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        place = _place_of(fullname)
        return None if place is None else ModuleSpec(fullname, self, origin=place)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(cast(str, spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has replaced the module's own specification with the old name's.
        module.__spec__ = cast(ModuleSpec, module.__spec__).loader_state


# First: the old name of a package would find its modules a second time.
sys.meta_path.insert(0, _Moved())
