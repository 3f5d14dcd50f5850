"""The same job without protection, with NVFlare's TenSEAL filters and with kahe: `python make_job.py --help`.

Controller, training, clients' weights and initial model are the same. All is as NVFlare's ``FedAvgRecipeWithHE`` has it
for TenSEAL: whole models are sent, weighted by clients' steps before they are encrypted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kahe_filters import KaheDecryptor, KaheEncryptor
from kahe_server import KaheAggregator, KaheModelPersistor
from meters import Meter, RoundClock
from nvflare.apis.dxo import DataKind
from nvflare.app_common.aggregators import InTimeAccumulateWeightedAggregator
from nvflare.app_common.shareablegenerators.full_model_shareable_generator import FullModelShareableGenerator
from nvflare.app_common.workflows.scatter_and_gather import ScatterAndGather
from nvflare.app_opt.pt.file_model_persistor import PTFileModelPersistor
from nvflare.job_config.api import FedJob
from nvflare.job_config.defs import FilterType
from nvflare.job_config.script_runner import ScriptRunner

FOLDER = Path(__file__).resolve().parent
PROTECTIONS = ("none", "tenseal", "kahe")


def make_job(
    protection: str,
    hidden: list[int],
    rounds: int,
    clients: int,
    figures: Path,
    session: str = "kahe",
    filters: bool = True,
) -> FedJob:
    """Return a job.

    Parameters
    ----------
    protection : one of ``PROTECTIONS``.
    hidden : of :class:`digits.Classifier`.
    rounds : of training.
    clients : that have to take part in every round.
    figures : folder that figures are written to.
    session : name of the folder of the kahe session, in ``local`` of the server and of every client.
    filters : whether the job brings its filters; not where each site has them in its privacy policy.
    """
    # The last task brings the model of the last round to the clients, which open it; what they train then is left.
    tasks = rounds + 1
    job = FedJob(name=f"digits_{protection}", min_clients=clients)
    model = {"path": "digits.Classifier", "args": {"hidden": hidden}}
    opens, encrypts = [], []
    if protection == "kahe":
        job.to_server(KaheModelPersistor(model=model), id="persistor")
        job.to_server(KaheAggregator(session), id="aggregator")
        job.to_server(FullModelShareableGenerator(), id="shareable_generator")
        opens, encrypts = [KaheDecryptor(session)], [KaheEncryptor(session)]
    elif protection == "tenseal":
        from nvflare.app_opt.he.intime_accumulate_model_aggregator import HEInTimeAccumulateWeightedAggregator
        from nvflare.app_opt.he.model_decryptor import HEModelDecryptor
        from nvflare.app_opt.he.model_encryptor import HEModelEncryptor
        from nvflare.app_opt.he.model_serialize_filter import HEModelSerializeFilter
        from nvflare.app_opt.he.model_shareable_generator import HEModelShareableGenerator

        job.to_server(PTFileModelPersistor(model=model, filter_id="model_serialize_filter"), id="persistor")
        job.to_server(HEModelSerializeFilter(), id="model_serialize_filter")
        job.to_server(
            HEInTimeAccumulateWeightedAggregator(
                expected_data_kind=DataKind.WEIGHTS, weigh_by_local_iter=False
            ),
            id="aggregator",
        )
        job.to_server(HEModelShareableGenerator(), id="shareable_generator")
        opens, encrypts = [HEModelDecryptor()], [HEModelEncryptor(weigh_by_local_iter=True)]
    else:
        job.to_server(PTFileModelPersistor(model=model), id="persistor")
        job.to_server(
            InTimeAccumulateWeightedAggregator(expected_data_kind=DataKind.WEIGHTS), id="aggregator"
        )
        job.to_server(FullModelShareableGenerator(), id="shareable_generator")
    job.to_server(
        ScatterAndGather(
            min_clients=clients,
            num_rounds=tasks,
            wait_time_after_min_received=0,
            aggregator_id="aggregator",
            persistor_id="persistor",
            shareable_generator_id="shareable_generator",
        )
    )
    job.to_server(RoundClock(str(figures)), id="round_clock")
    for module in ("digits.py", "meters.py"):
        job.add_file_to_server(str(FOLDER / module))
        job.add_file_to_clients(str(FOLDER / module))
    widths = " ".join(map(str, hidden))
    job.to_clients(ScriptRunner(script="train.py", script_args=f"--hidden {widths} --figures {figures}"))
    if not filters:
        opens, encrypts = [], []
    for chain, own, kind in (
        ("open", opens, FilterType.TASK_DATA),
        ("encrypt", encrypts, FilterType.TASK_RESULT),
    ):
        before, after = (Meter(chain, side, str(figures), sized_round=rounds) for side in (False, True))
        for one in (before, *own, after):
            job.to_clients(one, tasks=["train"], filter_type=kind)
    return job


def main() -> None:
    """Write a job's folder, for `nvflare job submit`."""
    parser = argparse.ArgumentParser(description="Write the folder of a job that trains on digits.")
    parser.add_argument("--protection", choices=PROTECTIONS, required=True)
    parser.add_argument(
        "--hidden", type=int, nargs="+", default=[32], help="widths of the model's hidden layers"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument(
        "--figures", type=Path, required=True, help="folder that all parties can write figures to"
    )
    parser.add_argument(
        "--session", default="kahe", help="name of the kahe session's folder at server and clients"
    )
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    job = make_job(given.protection, given.hidden, given.rounds, given.clients, given.figures, given.session)
    job.export_job(str(given.output))


if __name__ == "__main__":
    main()
