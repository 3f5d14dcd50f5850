import pytest

from lab.simulation.small_runs import fewer_samples, quick_synthetic_data
from methods.keys_made_once import keys_made_once  # noqa: F401


@pytest.fixture(scope="module")
def small_and_quick():
    """What is tested does not depend on how well anything is learnt."""
    with fewer_samples(coarse=True), quick_synthetic_data():
        yield
