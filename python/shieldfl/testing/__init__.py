"""What a package with a method of its own tests it with.

A method enters, passed or failed tests leave; it alone imports pytest. Read ``conformance.py`` first.
"""

import pytest

pytest.register_assert_rewrite("shieldfl.testing.conformance")

from shieldfl.learning.local_update import contraction  # noqa: E402
from shieldfl.testing.conformance import (  # noqa: E402
    MethodCase,
    MethodConformance,
    SteppedRun,
    initial_model,
)

__all__ = ["MethodCase", "MethodConformance", "SteppedRun", "contraction", "initial_model"]
