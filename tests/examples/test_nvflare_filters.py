"""The filters of examples/nvflare. `make nvflare` runs these tests, the slow one among them, where NVFlare is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import shieldfl as sf
from nvflare_example import FOLDER, MODEL, SITES, Federation, model_of, module, weighted_mean

pytest.importorskip("nvflare", reason="an environment of its own has NVFlare: make nvflare")

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.decomposers import numpy_decomposers
from nvflare.fuel.utils import fobs

STEPS = (8, 3, 1)


class Workspace:
    """What filters ask of NVFlare's workspace."""

    def __init__(self, place):
        self._place = place

    def get_site_config_dir(self):
        return str(self._place.parent)


class Round:
    """A job's parties, as NVFlare drives them: every message goes through its own serialisation."""

    def __init__(self, folder, monkeypatch):
        filters, self.server_module = module("kahe_filters"), module("kahe_server")
        self.federation = Federation(folder)
        monkeypatch.setattr(
            self.server_module, "answer_from", lambda _, __, request: self.federation.answered(request)
        )
        self.contexts = {site: self._context(place) for site, place in self.federation.sites.items()}
        self.encryptors = {site: filters.KaheEncryptor() for site in SITES}
        self.decryptors = {site: filters.KaheDecryptor() for site in SITES}
        self.server = self._context(self.federation.aggregator)
        self.server.set_prop(AppConstants.CURRENT_ROUND, 0, private=True, sticky=True)
        self.aggregator = self.server_module.KaheAggregator()
        self.aggregator.handle_event(EventType.START_RUN, self.server)

    def _context(self, place):
        context = FLContext()
        context.set_prop(FLContextKey.WORKSPACE_OBJECT, Workspace(place), private=True, sticky=True)
        return context

    def receive(self, site, round_number, sent=None):
        """Return the model that a client gets of a task, the one in the clear unless another is sent."""
        task = DXO(DataKind.WEIGHTS, dict(MODEL)).to_shareable() if sent is None else sent
        task.set_header(AppConstants.CURRENT_ROUND, round_number)
        task = fobs.loads(fobs.dumps(task))
        return from_shareable(self.decryptors[site].process(task, self.contexts[site])).data

    def result(self, model, steps):
        dxo = DXO(DataKind.WEIGHTS, dict(model))
        dxo.set_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND, steps)
        dxo.set_meta_prop(MetaKey.INITIAL_METRICS, {"accuracy": 0.123})
        return dxo.to_shareable()

    def send(self, site, model, steps):
        """Return what leaves a client."""
        filtered = self.encryptors[site].process(self.result(model, steps), self.contexts[site])
        return fobs.loads(fobs.dumps(filtered))

    def accept(self, site, sent):
        sent.set_peer_props({ReservedKey.IDENTITY_NAME: site})
        return self.aggregator.accept(sent, self.server)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    numpy_decomposers.register()
    folder = tmp_path_factory.mktemp("made")
    Federation(folder)
    return folder


@pytest.fixture
def parties(made, tmp_path, monkeypatch):
    return Round(shutil.copytree(made, tmp_path / "parties"), monkeypatch)


def test_a_round_comes_to_the_weighted_mean_and_the_next_one_begins_from_it(parties):
    opened_by_clients = None
    for round_number in (0, 1):
        parties.server.set_prop(AppConstants.CURRENT_ROUND, round_number, private=True, sticky=True)
        models = [model_of(10 * round_number + number) for number in range(3)]
        for site, model, steps in zip(SITES, models, STEPS, strict=True):
            parties.receive(site, round_number, opened_by_clients)
            assert parties.accept(site, parties.send(site, model, steps))
        opened_by_clients = parties.aggregator.aggregate(parties.server)
        parties.aggregator.reset(parties.server)
        wanted = weighted_mean(models, STEPS)
        for site in SITES:
            mean = parties.receive(site, round_number + 1, opened_by_clients)
            for name, array in wanted.items():
                np.testing.assert_allclose(mean[name], array, atol=2**-19)


def test_nothing_but_the_frame_leaves_a_client(parties):
    parties.receive("site-1", 0)
    sent = parties.send("site-1", model_of(1), 3)
    dxo = from_shareable(sent)
    assert set(dxo.data) == {"frame"}
    assert dxo.meta == {MetaKey.PROCESSED_ALGORITHM: "shieldfl kahe"}
    assert b"accuracy" not in fobs.dumps(sent)
    assert all(array.tobytes() not in fobs.dumps(sent) for array in model_of(1).values())


def test_a_client_that_failed_sends_that_it_did_and_nothing_else(parties):
    failed = parties.result(MODEL, 1)
    failed.set_return_code(ReturnCode.EXECUTION_EXCEPTION)
    sent = parties.encryptors["site-1"].process(failed, parties.contexts["site-1"])
    assert fobs.dumps(sent) == fobs.dumps(make_reply(ReturnCode.EXECUTION_EXCEPTION))


def test_what_is_no_model_does_not_leave(parties):
    parties.receive("site-1", 0)
    encryptor, context = parties.encryptors["site-1"], parties.contexts["site-1"]
    with pytest.raises(ValueError, match="only models"):
        encryptor.process(DXO(DataKind.METRICS, {"accuracy": 0.5}).to_shareable(), context)
    with pytest.raises(ValueError, match="NUM_STEPS_CURRENT_ROUND"):
        encryptor.process(DXO(DataKind.WEIGHTS, dict(MODEL)).to_shareable(), context)
    with pytest.raises(ValueError):
        encryptor.process(Shareable({"data": [1.0, 2.0]}), context)
    with pytest.raises(sf.ParameterError, match="other"):
        parties.send("site-1", MODEL | {"other": np.zeros(2, np.float32)}, 1)
    large = model_of(1)
    large["layer.bias"][1] = 1e6
    with pytest.raises(sf.errors.RangeError, match=r"the tensor 'layer\.bias'"):
        parties.send("site-1", large, 8)


def test_a_second_model_in_a_round_does_not_leave(parties):
    parties.receive("site-1", 0)
    first = parties.send("site-1", model_of(1), 3)
    assert from_shareable(parties.send("site-1", model_of(1), 3)).data == from_shareable(first).data
    with pytest.raises(sf.PolicyError, match="a frame of round 0 was made"):
        parties.send("site-1", model_of(2), 3)


def test_a_result_without_a_round_does_not_leave(parties):
    with pytest.raises(ValueError, match="KaheDecryptor"):
        parties.send("site-1", model_of(1), 3)


def test_a_server_has_no_model_in_the_clear_to_send(parties):
    parties.receive("site-1", 0)
    with pytest.raises(ValueError, match="in the clear in round 1"):
        parties.receive("site-1", 1)


def test_a_client_opens_the_last_round_alone_and_what_the_authority_answered(parties):
    for number, site in enumerate(SITES):
        parties.receive(site, 0)
        assert parties.accept(site, parties.send(site, model_of(number), 2))
    sent = parties.aggregator.aggregate(parties.server)
    with pytest.raises(ValueError, match="begins from a sum of round 0"):
        parties.receive("site-1", 2, sent)
    for part in ("total", "answer"):
        altered = fobs.loads(fobs.dumps(sent))
        data = from_shareable(altered).data
        data[part] = data[part][:-40] + bytes([data[part][-40] ^ 1]) + data[part][-39:]
        with pytest.raises((sf.KeyMismatchError, sf.WireFormatError)):
            parties.receive("site-1", 1, altered)


def test_the_server_adds_nothing_but_clients_own_frames_of_the_round(parties):
    for site in SITES:
        parties.receive(site, 0)
    own = parties.send("site-1", model_of(1), 2)
    assert not parties.accept("site-2", fobs.loads(fobs.dumps(own)))
    assert not parties.accept("site-2", parties.result(MODEL, 1))
    assert not parties.accept("site-2", make_reply(ReturnCode.OK))
    assert parties.accept("site-1", own)
    assert not parties.accept("site-1", fobs.loads(fobs.dumps(own)))
    assert parties.accept("site-2", parties.send("site-2", model_of(2), 2))
    with pytest.raises(sf.PolicyError, match="2"):
        parties.aggregator.aggregate(parties.server)
    parties.aggregator.reset(parties.server)
    with pytest.raises(ValueError, match="no client's result"):
        parties.aggregator.aggregate(parties.server)
    parties.server.set_prop(AppConstants.CURRENT_ROUND, 1, private=True, sticky=True)
    assert not parties.accept("site-3", parties.send("site-3", model_of(3), 2))


def compared(folder, *options):
    """Return what compare.py prints of its table, by protection, and how often the authority has answered."""
    done = subprocess.run(
        [
            sys.executable,
            FOLDER / "compare.py",
            *("--workspace", folder, "--rounds", "3", "--models", "32", *options),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    titles, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    found = {row["protection"]: row for row in (dict(zip(titles, cells, strict=True)) for cells in rows)}
    answers = re.findall(r"POST /answer HTTP/1\.1\" 200", (folder / "authority-0" / "log").read_text())
    return table, found, len(answers)


@pytest.mark.slow
def test_three_protections_of_one_job_in_poc_mode(tmp_path, capsys):
    table, found, answers = compared(tmp_path / "poc")
    with capsys.disabled():
        print("", *table, sep="\n")
    assert set(found) == {"none", "tenseal", "kahe"}
    assert answers == 4

    def number(protection, title):
        return float(found[protection][title].replace(",", ""))

    for protection in ("tenseal", "kahe"):
        assert abs(number(protection, "accuracy") - number("none", "accuracy")) < 0.01
    assert number("none", "accuracy") > 0.8
    for direction in ("kB up", "kB down"):
        assert number("kahe", direction) < number("tenseal", direction)
        assert number("none", direction) > 2_410 * 4 / 1_000


@pytest.mark.slow
def test_a_job_without_filters_is_encrypted_by_the_sites_policy(tmp_path):
    _, found, answers = compared(tmp_path / "poc", "--site-policy")
    assert list(found) == ["kahe"]
    assert float(found["kahe"]["accuracy"]) > 0.8
    assert answers == 4
