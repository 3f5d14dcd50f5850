"""What a run of the tests left out, and why, for `make test` to say at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

__all__ = ["note_left_out"]


def note_left_out(skipped: Iterable[pytest.TestReport], path: Path) -> None:
    """Add a line to a file for each reason that tests were skipped for, with how many there are."""
    # A file that is skipped as a whole is reported by each process that collects it.
    once = {report.nodeid: report.longrepr[2].removeprefix("Skipped: ") for report in skipped}
    reasons = Counter(once.values())
    with path.open("a") as file:
        file.writelines(
            f"{count} test{'s' * (count > 1)}: {reason}\n" for reason, count in reasons.most_common()
        )
