"""An aggregator has clients encrypt other positions than those that the key authority said: it reads the rest."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.variants import CLIENTS, labelled
from shieldfl.errors import PolicyError
from shieldfl.masks import Mask
from shieldfl.roles.message import Message

AGREED = ["fedml-he", "fedml-he/paillier-dense", "alt-fl-pi", "alt-fl-si-he", "alt-fl-mp"]


def another_of_the_size(zone: Mask, parameters: int) -> Mask:
    """As many parameters, none of them the same, and all buffers."""
    others = np.flatnonzero(~zone.resized(parameters).to_bool())[: zone.resized(parameters).count]
    return Mask.from_indices(others, parameters).resized(zone.size, chosen=True)


@pytest.mark.parametrize("label", AGREED)
def test_no_answer_replaces_the_mask_of_the_signed_model_for_a_client_that_comes_late(label):
    run = SteppedRun(labelled(label))
    run.run_round([0, 1, 2])
    for number in (2, 3):
        first = run.begin_round(number)
        late = run.new_client(3)
        late.finish_training(contraction(number, 3, late.begin_round(number, CLIENTS, first)))
        lie = another_of_the_size(Mask.from_bytes(first["zone"]), run.method.plan.parameters)
        with pytest.raises(PolicyError, match="signed model"):
            late.step("update", Message({"zone": lie.to_bytes()}))
        assert "ciphertexts" in late.step("update", None)
