"""Import paths that documentation named before modules moved: each gives the same objects as the new path."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from shieldfl._aliases import _place_of

pytest.importorskip("torch")
pytest.importorskip("opacus")
pytest.importorskip("sklearn")

NAMES = {
    "audit.attack": "Recovered UpdateAttack",
    "audit.federation_attack": "FederationAttack",
    "audit.protocol.protocol_attack": "ProtocolAttack",
    "audit.views.observed_update": "ObservedUpdate",
    "authority.granted_keys": "ClientKeys GrantedKeys",
    "authority_service.session_request": "SessionRequest",
    "ckks": "Aggregator Encryptor Parameters",
    "fleet.fleet_file": "parse_fleet",
    "fleet.simulate.fleet_simulation": "summarise",
    "fleet.simulate.paper_costs": "paper_cost_model",
    "fleet.simulate.planner": "plan_round",
    "fleet.simulate.round_simulation": "simulate",
    "kahe": "Aggregator ClientKey Encryptor Parameters PublicKey Total open",
    "methods.alt_fl.settings": "AltFlSettings",
    "methods.batch_crypt.method": "BatchCryptSettings",
    "methods.dict_pfl.pruning": "DictPflSettings",
    "methods.dict_pfl.settings": "DictPflSettings",
    "methods.distributed_noise.settings": "DdpFedAvgSettings FullEncryptionSettings",
    "methods.encrypted_sum.encryption_settings": "EncryptionSettings FedMlHeSettings MaskCryptSettings",
    "methods.encrypted_sum.mixed_upload": "encrypted_positions",
    "methods.model_adaptation": "adapt_model",
    "methods.noised_average": "DpFedAvgSettings DpSgdSettings",
    "methods.noised_average.settings": "DpFedAvgSettings DpSgdSettings",
    "methods.protocol.driver": "RoundDriver",
    "methods.protocol.global_model": "GlobalModel",
    "methods.protocol.method": "Method",
    "methods.protocol.named_method": "NamedMethod check_declarations",
    "methods.protocol.plan": "FederationPlan",
    "methods.selective_shield.settings": "SelectiveShieldSettings",
    "methods.sense_crypt.settings": "SenseCryptSettings",
    "methods.settings": "MethodSettings",
    "pads": "Aggregator Encryptor Parameters open",
    "paillier": "Aggregator Encryptor Parameters UnionOrder",
    "privacy.hidden_participation": "",
    "roles.answer_opener": "AnswerOpener",
    "roles.authority_store": "",
    "roles.client_store": "ClientStore",
    "roles.message": "Message",
    "roles.private_file": "write_private_file",
    "roles.sum_key_authority": "",
    "rounds.global_model": "GlobalModel",
    "rounds.named_method": "NamedMethod check_declarations",
    "scheme": "",
    "scheme.enrolment": "client_number",
    "selection": "SelectionLimits mutual_information select top_k",
    "simulation.compared_runs": "ComparedRuns",
    "simulation.config": "RunConfig",
    "lab.fleet.planner": "plan_round",
    "lab.simulation.partition": "dirichlet_partition",
    "simulation.data": "load_dataset",
    "simulation.federation": "EmbeddedFederation",
    "torch": "BATCH_NORM_STATISTICS ModelLayout ModelParts",
    "torch_bridge": "flatten flatten_buffers load_flat",
    "training": "",
    "training.local_trainer": "LocalTrainer",
    "learning.sgd": "TrainingSettings evaluate",
    "training.models": "build_model",
    "training.sgd": "TrainingSettings evaluate",
}


@pytest.mark.parametrize("path", NAMES)
def test_an_old_path_gives_the_objects_of_the_new_one(path):
    old = import_module(f"shieldfl.{path}")
    new = import_module(_place_of(f"shieldfl.{path}"))
    assert old is new
    assert new.__spec__.name == new.__name__ == _place_of(f"shieldfl.{path}")
    assert all(getattr(old, name) is getattr(new, name) for name in NAMES[path].split())


@pytest.mark.parametrize("path", ["simulation.config", "roles.message", "methods.alt_fl.settings"])
def test_an_old_path_comes_first_as_well(path):
    """Whichever is imported first: no module is loaded twice."""
    code = (
        "import importlib, sys\n"
        f"old = importlib.import_module('shieldfl.{path}')\n"
        f"new = importlib.import_module({_place_of(f'shieldfl.{path}')!r})\n"
        "assert old is new and new.__spec__.name == new.__name__\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
