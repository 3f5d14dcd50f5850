"""The suite that every method of shieldfl passes: ``pytest test_chosen_share.py``, with the package installed."""

import pytest
from chosen_share import ChosenShareSettings, chosen_positions

from shieldfl.errors import ParameterError
from shieldfl.testing import MethodConformance


class TestChosenShare(MethodConformance):
    """Under CKKS, a quarter at the end of the model."""

    method = "chosen-share"


class TestSpreadShare(MethodConformance):
    """Half of the positions, every other one."""

    method = "chosen-share"
    settings = {"share": 0.5, "place": "spread"}


@pytest.mark.parametrize(
    ("place", "positions"), [("end", [6, 7, 8, 9]), ("start", [0, 1, 2, 3]), ("spread", [0, 2, 5, 7])]
)
def test_the_share_is_where_it_was_chosen(place, positions):
    chosen = chosen_positions(ChosenShareSettings(share=0.4, place=place), 10)
    assert list(chosen.to_indices()) == positions


@pytest.mark.parametrize("changes", [{"share": 0.0}, {"share": 1.1}, {"place": "middle"}])
def test_other_settings_are_refused(changes):
    with pytest.raises(ParameterError):
        ChosenShareSettings(**changes)
