"""Which draws of clients a run is charged."""

from __future__ import annotations

import pytest

from shieldfl.methods.protocol.account import Account


def charged_draws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that from now on gets the number of clients of every draw that an account is charged."""
    counts: list[int] = []
    charge = Account.charge_draw

    def counting(account: Account, participants: int, drawn_from: int | None = None) -> None:
        counts.append(participants)
        charge(account, participants, drawn_from)

    monkeypatch.setattr(Account, "charge_draw", counting)
    return counts
