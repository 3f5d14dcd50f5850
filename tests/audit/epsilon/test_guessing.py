"""Which canaries are guessed first."""

from __future__ import annotations

import numpy as np
import pytest

from shieldfl.audit.epsilon.bounds import guess_presence
from shieldfl.errors import ParameterError


def test_the_strongest_evidence_is_guessed_first():
    evidence = np.array([0.1, -3.0, 2.0, -0.2])
    assert guess_presence(evidence, 2).tolist() == [0, -1, 1, 0]
    assert guess_presence(evidence, 4).tolist() == [1, -1, 1, -1]
    with pytest.raises(ParameterError):
        guess_presence(evidence, 5)
