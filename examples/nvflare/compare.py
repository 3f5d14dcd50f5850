"""The job of make_job.py without protection, with TenSEAL and with kahe, in one run of NVFlare's POC mode.

`python compare.py --workspace FOLDER` provisions one server and three clients, sets a key authority up as a process of
its own, runs the jobs one after the other, and prints what each came to. Everything is on one machine's loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import key_authority
from digits import SITES, Classifier, training_data
from kahe_session import SESSION_FILE, ClientSite
from make_job import FOLDER, PROTECTIONS, make_job
from meters import read_figures
from nvflare.fuel.flare_api.flare_api import new_secure_session
from train import BATCH

from shieldfl.models import ModelLayout

ADMIN = "admin@nvidia.com"
MOST_SECONDS_OF_A_JOB = 900.0


class Poc:
    """NVFlare's POC mode in a folder of its own, which nothing outside of it knows of."""

    def __init__(self, workspace: Path) -> None:
        home = workspace / "home"
        home.mkdir(parents=True)
        self._environment = os.environ | {
            "HOME": str(home),
            "NVFLARE_POC_WORKSPACE": str(workspace / "poc"),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        self._command("prepare", "--clients", *SITES, "--he", "--force")
        self.kits = workspace / "poc" / "example_project" / "prod_00"

    def _command(self, *arguments: str) -> None:
        subprocess.run(["nvflare", "poc", *arguments], env=self._environment, check=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let server and clients run, each a process of its own."""
        try:
            self._command("start")
            yield
        finally:
            self._command("stop")

    def run(self, job: Path) -> None:
        """Run a job to its end. Raises RuntimeError for one that fails, with where its logs are."""
        session = new_secure_session(ADMIN, str(self.kits / ADMIN))
        try:
            job_id = session.submit_job(str(job))
            session.monitor_job(job_id, timeout=MOST_SECONDS_OF_A_JOB, poll_interval=1.0)
            status = session.get_job_meta(job_id)["status"]
        finally:
            session.close()
        if status != "FINISHED:COMPLETED":
            raise RuntimeError(f"the job {job.name} ended as {status}: look into {self.kits}/server/{job_id}")


def set_up_session(
    poc: Poc, authority: Path, session: str, hidden: list[int], address: str, passphrase: str
) -> None:
    """Make a key authority with a session, and give server and clients what is theirs.

    In a federation the three steps are at three places, and what goes between them are the files.
    """
    most_steps = max(-(-len(training_data(site)[1]) // BATCH) for site in SITES)
    layout = ModelLayout.of(Classifier(hidden))
    sizes = {"max_clients": len(SITES), "min_clients": len(SITES)}
    key_authority.make(
        authority, layout, **sizes, most_steps=most_steps, address=address, passphrase=passphrase
    )
    shutil.copytree(authority / "aggregator", poc.kits / "server" / "local" / session)
    for site in SITES:
        folder = poc.kits / site / "local" / session
        folder.mkdir(mode=0o700)
        shutil.copy(authority / "aggregator" / SESSION_FILE, folder)
        request = ClientSite.request(folder, site)
        ClientSite(folder).take_grant(key_authority.accept(authority, request, passphrase))


def set_up_policy(poc: Poc, session: str) -> None:
    """Give every site the filters as its own: they stand before those of any job, whatever the job says."""
    policy = json.loads((FOLDER / "privacy.json").read_text())
    for one in policy["scopes"][0]["task_data_filters"] + policy["scopes"][0]["task_result_filters"]:
        one["args"]["folder"] = session
    for site in SITES:
        local = poc.kits / site / "local"
        (local / "privacy.json").write_text(json.dumps(policy))
        (local / "custom").mkdir(exist_ok=True)
        for module in ("kahe_filters.py", "kahe_session.py"):
            shutil.copy(FOLDER / module, local / "custom")


@contextmanager
def served(authority: Path, passphrase: str) -> Iterator[None]:
    """Serve a key authority in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, str(FOLDER / "key_authority.py"), "serve", str(authority)],
        env=os.environ | {"SHIELDFL_AUTHORITY_PASSPHRASE": passphrase},
        stdout=subprocess.PIPE,
        stderr=(authority / "log").open("w"),
        text=True,
    )
    try:
        assert process.stdout is not None
        if not process.stdout.readline().startswith("answering"):
            raise RuntimeError(f"the key authority does not start: look into {authority / 'log'}")
        yield
    finally:
        process.terminate()
        process.wait()


def row_of(protection: str, parameters: int, rounds: int, figures: Path) -> dict[str, str]:
    """Return a row of the table from the figures of a job.

    Seconds are means over all rounds but the first, whose model comes in the clear, and the one in which bytes are
    counted.
    """
    read = read_figures(figures)

    def values(what: str, of: range) -> list[float]:
        found = [float(str(one["value"])) for one in read if one["what"] == what and one["round"] in of]
        if not found:
            raise RuntimeError(
                f"the job without {what!r} in its figures, {figures}, did not run as it should"
            )
        return found

    timed, last = range(1, rounds), range(rounds, rounds + 1)
    accuracies = set(values("accuracy", last))
    if len(accuracies) != 1:
        raise RuntimeError(
            f"clients that opened the same model tell it apart: accuracies {sorted(accuracies)}"
        )

    def milliseconds(what: str, times: int = 1) -> str:
        return f"{1_000 * times * statistics.mean(values(what, timed)):,.1f}"

    def kilobytes(direction: str) -> str:
        return f"{statistics.mean(values(f'bytes {direction}', last)) / 1_000:,.1f}"

    return {
        "parameters": f"{parameters:,}",
        "protection": protection,
        "s a round": f"{statistics.mean(values('round seconds', timed)):.2f}",
        "client encrypts, ms": milliseconds("encrypt seconds"),
        "server adds all, ms": milliseconds("add seconds", len(SITES)),
        "server ends the sum, ms": milliseconds("aggregate seconds"),
        "client opens, ms": milliseconds("open seconds"),
        "kB up": kilobytes("up"),
        "kB down": kilobytes("down"),
        "accuracy": f"{accuracies.pop():.4f}",
    }


def print_table(rows: list[dict[str, str]]) -> None:
    """Print rows as Markdown."""
    print("| " + " | ".join(rows[0]) + " |")
    print("| " + " | ".join("---" for _ in rows[0]) + " |")
    for row in rows:
        print("| " + " | ".join(row.values()) + " |")


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description="Compare NVFlare's protections of models on one job.")
    parser.add_argument(
        "--workspace", type=Path, required=True, help="a folder that is made, and left for its logs"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--models",
        nargs="+",
        default=["32", "512,512"],
        help="widths of hidden layers, one word for each model",
    )
    parser.add_argument("--protections", nargs="+", choices=PROTECTIONS, default=list(PROTECTIONS))
    parser.add_argument(
        "--port", type=int, default=7445, help="of the first key authority; later ones have the next"
    )
    parser.add_argument(
        "--site-policy",
        action="store_true",
        help="run kahe alone, by filters of the sites' privacy policy and none of the job's; its meters see neither",
    )
    given = parser.parse_args()
    if given.site_policy:
        given.models, given.protections = given.models[:1], ["kahe"]
    # Job's files are found by names that are relative to here.
    workspace = given.workspace.absolute()
    os.chdir(FOLDER)
    passphrase = secrets.token_hex(16)
    models = [[int(width) for width in model.split(",")] for model in given.models]
    poc = Poc(workspace)
    for number, hidden in enumerate(models):
        place = workspace / f"authority-{number}", f"kahe-{number}", hidden
        set_up_session(poc, *place, f"127.0.0.1:{given.port + number}", passphrase)
    if given.site_policy:
        set_up_policy(poc, "kahe-0")
    rows = []
    with poc.running():
        for number, hidden in enumerate(models):
            parameters = sum(one.numel() for one in Classifier(hidden).parameters())
            for protection in given.protections:
                figures = workspace / "figures" / f"{number}-{protection}"
                figures.mkdir(parents=True)
                jobs = workspace / "jobs" / str(number)
                shape = hidden, given.rounds, len(SITES)
                job = make_job(protection, *shape, figures, f"kahe-{number}", filters=not given.site_policy)
                job.export_job(str(jobs))
                with served(workspace / f"authority-{number}", passphrase):
                    poc.run(jobs / job.name)
                rows.append(row_of(protection, parameters, given.rounds, figures))
    print_table(rows)


if __name__ == "__main__":
    main()
