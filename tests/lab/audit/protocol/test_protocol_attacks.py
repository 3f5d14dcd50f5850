"""Lies of an aggregator as an audit tells them: refused by the real roles, and answered by roles that are weakened."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from encryption.wire_twin import reseal
from shieldfl.authority import authority_store
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, PolicyError, RangeError
from shieldfl.lab.audit.attack import BUILT_IN, Cell, usable_attacks
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.protocol.ckks_frames import resealed
from shieldfl.lab.audit.protocol.protocol_attack import PlayedFederation, ProtocolAttack, share_told
from shieldfl.lab.audit.session import run_audit
from shieldfl.lab.audit.views.view import PARTIES, party_named
from shieldfl.methods.registry import MethodSettings
from shieldfl.rounds.training_client import TrainingClient

OFFERED = usable_attacks(BUILT_IN)[0]
LIES = {kind.name: kind for kind in OFFERED if isinstance(kind, type) and issubclass(kind, ProtocolAttack)}
BOTH = ("aggregator", "aggregator-and-client")
KEY = bytes(32)


def cells(lie: str, method: str = "full-he", encryption: str | None = None, **config: object) -> list[Cell]:
    settings = MethodSettings()
    if encryption is not None:
        settings = settings.changed(method, {"encryption": encryption})
    audit = AuditConfig(threads=1, **config)
    attack = LIES[lie](audit, settings, None, [party_named(name) for name in BOTH])
    return attack.cells(method, lambda name, number: None)


def verdicts(found: list[Cell]) -> list[str]:
    return [cell.verdict(None) for cell in found]


class Forgetful:
    """A key authority that answers again what it should refuse: from what it was when the round began."""

    def __init__(self, federation: PlayedFederation) -> None:
        self._federation, self._real = federation, federation.authority
        self._states: dict[int, bytes] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def begin_round(self, number, *others):
        first = self._real.begin_round(number, *others)
        self._states.setdefault(number, self._real.state(KEY))
        return first

    def answer(self, phase, message):
        try:
            return self._real.answer(phase, message)
        except PolicyError:
            earlier = self._federation.new_authority()
            earlier.restore(self._states[message.number("round")], KEY)
            return earlier.answer(phase, message)


@pytest.fixture
def forgetful(monkeypatch):
    made = PlayedFederation.set_up

    def set_up(*how):
        federation = made(*how)
        federation.authority = Forgetful(federation)
        return federation

    monkeypatch.setattr(PlayedFederation, "set_up", set_up)


@pytest.fixture
def without_a_least_number(monkeypatch):
    read, honest = authority_store._read_session, AuthorityStore.answer

    def read_without(*asked):
        begun = read(*asked)
        return begun._replace(rules=begun.rules._replace(min_clients=1))

    def answer(store, *asked):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(authority_store, "_read_session", read_without)
            return honest(store, *asked)

    monkeypatch.setattr(AuthorityStore, "answer", answer)


@pytest.mark.every_run(
    "aggregator-invented-clients",
    "clients-tampered-ciphertext",
    "aggregator-few-total",
    "clients-second-total",
)
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("opener", ["clients", "aggregator"])
def test_full_he_tells_nothing_by_any_lie_where_clients_enrol(lie, opener):
    alone, with_client = cells(lie, opener=opener)
    assert (alone.status == "does not apply") == LIES[lie].needs_client
    for cell in (with_client,) if LIES[lie].needs_client else (alone, with_client):
        assert (cell.status, cell.figure, cell.tries) == ("attacked", 0.0, 5)
        assert cell.form.startswith(("refused with PolicyError: ", "refused with WireFormatError: "))
        assert cell.verdict(None) == "chance"


def test_a_sum_of_one_tells_its_update_where_the_authority_does_not_count(without_a_least_number):
    alone, with_client = cells("lone-total")
    assert (alone.figure, with_client.figure) == (0.0, 1.0)
    assert with_client.form == "obtained: single update of client 0, 100% of its encrypted values"
    assert alone.form.startswith("answered, and the answer is for clients to open")
    assert verdicts([alone, with_client]) == ["chance", "some"]
    assert verdicts(cells("lone-total", opener="aggregator")) == ["some", "some"]


@pytest.mark.parametrize("opener", ["clients", "aggregator"])
def test_a_sum_of_two_tells_the_others_update_where_the_authority_does_not_count(
    opener, without_a_least_number
):
    alone, with_client = cells("few-total", opener=opener)
    assert alone.status == "does not apply"
    assert (with_client.figure, with_client.verdict(None)) == (1.0, "some")


@pytest.mark.parametrize("lie", ["second-total", "late-total"])
@pytest.mark.parametrize("method", ["full-he", "fedml-he"])
def test_a_second_sum_tells_an_update_where_the_authority_forgets(lie, method, forgetful):
    _, found = cells(lie, method)
    # The first round of fedml-he has answered another phase since it began, and what it forgets then, it refuses.
    assert found.figure == pytest.approx(1.0 if method == "full-he" else 0.8)
    assert found.verdict(None) == "some"
    assert "single update of client" in found.form


@pytest.mark.parametrize("method", ["full-he", "mask-crypt", "selective-shield"])
def test_invented_clients_tell_an_update_wherever_anybody_may_encrypt(method):
    alone, found = cells("invented-clients", method, "ckks")
    assert (alone.figure, found.figure) == (0.0, 1.0)
    _, enrolled = cells("invented-clients", method, "kahe")
    assert enrolled.figure == 0.0
    assert "does not open to sums of values in range" in enrolled.form


@pytest.mark.parametrize("opener", ["aggregator", "authority"])
def test_invented_clients_tell_an_update_where_the_authority_enrols_whoever_asks(monkeypatch, opener):
    """In the place of clients that have not come yet: of the victims of five lies the first one alone has enrolled."""
    honest = TrainingClient.enrolment

    def set_up(*how):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                TrainingClient, "enrolment", lambda one: honest(one) if one.index == 0 else Message()
            )
            return PlayedFederation(*how)

    monkeypatch.setattr(PlayedFederation, "set_up", set_up)
    _, found = cells("invented-clients", opener=opener)
    assert found.form == "obtained: single update of client 0, 100% of its encrypted values"


def test_a_tampered_ciphertext_tells_the_key_of_ckks_and_with_it_an_update():
    for encryption, told in (("ckks", 1.0), ("pads", 0.0)):
        _, found = cells("tampered-ciphertext", encryption=encryption)
        assert found.figure == told


def test_a_round_that_does_not_run_is_no_lie_that_was_refused(monkeypatch):
    monkeypatch.setattr(PlayedFederation, "begin_round", fails)
    with pytest.raises(RangeError, match="of no lie"):
        cells("lone-total")


def fails(*arguments):
    raise RangeError("of no lie")


def test_roles_of_another_package_are_not_played(monkeypatch):
    monkeypatch.setattr("shieldfl.lab.audit.protocol.protocol_attack.TrainingClient", str)
    with pytest.raises(ParameterError, match="none of this package's"):
        cells("lone-total")


def test_plain_averaging_needs_no_lie_and_a_method_without_keys_has_none():
    config = AuditConfig(threads=1, budget_minutes=100.0)
    result = run_audit(config, ["full-he", "dp-fedavg"], ["lone-total"], [one.name for one in PARTIES])
    found = {(cell.method, cell.party): cell for cell in result.cells}
    assert result.verdict(found["fedavg", "aggregator"]) == "all"
    assert "no keys" in found["dp-fedavg", "aggregator"].reason
    assert found["full-he", "authority"].status == "does not apply"
    assert "ask for aggregator-and-client" in found["full-he", "authority"].reason
    bare, told = result.notes
    both = "for aggregator and aggregator-and-client"
    assert bare.startswith(f"lone-total on fedavg, {both}: no lie is needed")
    assert told.startswith(
        f"lone-total on full-he, {both}: refused with PolicyError: the list names 1 clients"
    )


def test_a_sum_of_two_is_no_lie_where_two_are_enough():
    with pytest.raises(ParameterError, match="not too small"):
        cells("few-total", min_clients=2)


def test_what_is_told_is_counted_where_it_was_encrypted():
    change = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    encrypted = np.array([True, True, False, False])
    assert share_told(np.array([1.0, 2.5, 3.0, 4.0]), change, encrypted) == 0.5
    assert share_told(None, change, encrypted) == 0.0


@pytest.mark.every_run("ckks-tampered-ciphertext", "kahe-lone-total", "ckks-few-total")
@pytest.mark.parametrize("lie", [name for name in LIES if name != "invented-clients"])
@pytest.mark.parametrize("encryption", ["kahe", "ckks"])
def test_rounds_in_which_nothing_is_encrypted_are_no_tries(lie, encryption):
    _, found = cells(lie, "alt-fl-pi", encryption)
    assert found.tries == 5
    assert not np.isnan(found.chance)


def test_invented_clients_that_cannot_follow_a_federation_are_not_said_to_be_refused():
    with pytest.raises(ParameterError, match="nothing was encrypted in a round that this lie can be told in"):
        cells("invented-clients", "alt-fl-pi", "kahe")
    _, found = cells("invented-clients", "alt-fl-pi", "ckks")
    assert found.figure == 1.0


def test_a_frame_has_the_checksum_of_the_wire_format():
    frame = bytes(range(256)) * 3
    assert resealed(frame) == reseal(frame)
