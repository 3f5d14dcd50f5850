"""The suite that every method of shieldfl passes: ``pytest test_chosen_share.py``, with the package installed."""

from shieldfl.testing import MethodCase, MethodConformance, SteppedRun


class TestChosenShare(MethodConformance):
    method = "chosen-share"


class TestAnotherShare(MethodConformance):
    method = "chosen-share"
    settings = {"share": 0.6}


def test_the_last_parameters_are_encrypted():
    run = SteppedRun(MethodCase("chosen-share"))  # of 333 parameters
    run.run_round()
    assert list(run.clients[0].disclosure.encrypted.to_indices()) == list(range(250, 333))
