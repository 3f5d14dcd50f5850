"""What holds after every round of every method, by what its roles state and report."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shieldfl.learning.local_update import FloatVector
from shieldfl.privacy.events import ClearUpload, EncryptedUpload, NoisedUpload, NoiseShareUpload, OpenedSum
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import TELL_OPENED
from shieldfl.rounds.training_client import PUBLIC_PARTS
from shieldfl.testing.stepped_run import MethodCase, SteppedRun


def float_spacing(*vectors: FloatVector) -> FloatVector:
    """Return the distance between neighbouring float32 numbers at the largest of the magnitudes, by position."""
    largest = np.max(np.abs(vectors), axis=0).astype(np.float32)
    spacing: FloatVector = np.spacing(largest).astype(np.float64)
    return spacing


def check_facts(method: Method, run: SteppedRun) -> None:
    """Check that a round went as the class says: its phases, schemes and scores."""
    stated = [phase.name for phase in type(method).phases]
    phases = [phase.name for phase in method.phases_of(run.model, 1)]
    assert set(run.sent) - {TELL_OPENED.name} <= set(stated)
    assert phases == [name for name in stated if name in phases], "phases are in the order of the class"
    assert bool(method.purposes) == bool(type(method).schemes) == (run.authority is not None)
    for start in run.starts.values():
        assert start.scores in (None, method.scores)
        if start.noise is not None:
            assert type(method).trains_privately(method.name, run.entry)
        if start.synthetic or start.synthetic_share:
            assert method.synthetic_demand is not None
            assert type(method).named(method.name).takes_synthetic


def check_shares(run: SteppedRun, participants: Sequence[int]) -> None:
    """Check that the shares of each client's zones sum to one, and that a method that hides all shows nothing."""
    for client in participants:
        stated = run.clients[client].disclosure
        shares = stated.shares()
        assert set(shares) == {"encrypted", "personalised", "noise", "clear"}
        assert all(0.0 <= share <= 1.0 for share in shares.values())
        assert math.isclose(sum(shares.values()), 1.0, abs_tol=1e-12)
        if run.method.hides_all:
            assert not stated.clear.count
            assert not stated.noised.count
            assert set(stated.parts) <= set(PUBLIC_PARTS)
            assert stated.buffers in ("encrypted", "local")


def check_messages(run: SteppedRun, participants: Sequence[int]) -> None:
    """Check that no message of the last round has values in the clear that are stated as encrypted, or as kept.

    They are looked for as they are, in float32 and float64: what a client sends and forgets to state is found, and not
    what somebody has disguised. Parts that are stated by name to tell of the data are left out.
    """
    for client in participants:
        stated, trained, start = run.clients[client].disclosure, run.updates[client], run.starts[client]
        readable = set(stated.parts) - set(PUBLIC_PARTS)
        hidden = (stated.encrypted | stated.kept).to_bool() & (trained.parameters != start.parameters)
        # One float32 is in ciphertexts by chance; two neighbours, or one float64, are not.
        pairs = np.flatnonzero(hidden[:-1] & hidden[1:])
        for vector in (trained.parameters, trained.parameters - start.parameters):
            values = vector.astype(np.float32)
            forms = {values[at : at + 2].tobytes() for at in pairs}
            forms |= {value.tobytes() for value in values[hidden].astype(np.float64)}
            for phase, messages in run.sent.items():
                for name, part in messages[client].items() if client in messages else ():
                    if name not in readable:
                        content = bytes(part)
                        shown = any(form in content for form in forms)
                        assert not shown, f"{name} of phase {phase} shows values that are stated as hidden"


def check_records(run: SteppedRun, number: int, participants: Sequence[int]) -> None:
    """Check that every upload and every opened sum of a round is among the events, in the zone that is stated."""
    encrypted = (EncryptedUpload, NoiseShareUpload)
    uploads = (*encrypted, NoisedUpload, ClearUpload)
    recorded = [event for event in run.account.book.all if getattr(event, "round", None) == number]
    # Introductions are of parts; the update itself is of values.
    updates = [
        one for one in recorded if isinstance(one, uploads) and getattr(one, "what", "values") == "values"
    ]
    assert {one.client for one in updates} == set(participants)
    opened = [event for event in recorded if isinstance(event, OpenedSum)]
    assert bool(opened) == any(isinstance(one, encrypted) for one in updates)
    for one in updates:
        stated = run.clients[one.client].disclosure
        zone = {
            EncryptedUpload: stated.encrypted,
            NoiseShareUpload: stated.encrypted,
            NoisedUpload: stated.noised,
            ClearUpload: stated.clear,
        }[type(one)]
        buffers = type(one) is EncryptedUpload and stated.buffers == "encrypted"
        assert zone.count or buffers
        assert one.round == number


def check_costs(run: SteppedRun) -> None:
    """Check after one round: encryption gets no epsilon, and nothing that can be read costs nothing."""
    spent = run.account.spent()
    # Where the aggregator opens sums it reads them. What hides all and has an epsilon has one of its opened sums.
    method = run.method
    shows = not method.hides_all or method.aggregator_opens or method.privacy_reading.unit is not None
    assert spent.rounds == 1
    assert (spent.epsilon > 0.0) == shows
    assert math.isnan(spent.epsilon) != shows
    assert math.isinf(spent.epsilon) == (spent.reason is not None)
    assert math.isnan(spent.of_noise) or spent.of_noise >= spent.if_participants_true
    assert all(isinstance(name, str) for name in run.settings())


def check_same_model(first: SteppedRun, second: SteppedRun, case: MethodCase) -> None:
    """Check that two runs have the same model: to the last bit, but for noise."""
    for one, other in ((first.parameters, second.parameters), (first.buffers, second.buffers)):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=case.tolerance)


def check_same_reports(first: SteppedRun, second: SteppedRun) -> None:
    """Check that two runs recorded the same events and remarks: nothing is lost, or told twice, by a restart."""
    one, other = first.account, second.account
    assert sorted(map(repr, one.book.all)) == sorted(map(repr, other.book.all))
    assert one.notes == other.notes
