"""Results of audits that nobody has made, with figures that are easy to check."""

from __future__ import annotations

from dataclasses import asdict, replace

import torch

from lab.simulation.report.made_up_runs import SIXTEEN
from shieldfl.lab.audit.attack import AuditResult, Cell, Example, Verdict
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views.view import PARTIES

__all__ = ["audit_of", "audit_of_one_try", "audit_of_sixteen", "cell", "example", "small_audit", "with_cells"]

FIGURES: dict[Verdict, tuple[float, float, float]] = {
    "all": (0.9, 0.8, 1.0),
    "some": (0.6, 0.5, 0.7),
    "chance": (0.3, 0.1, 0.5),
}
"""By verdict, beside an undefended cell of the first: figure and interval, where chance has 0.25."""


def cell(method: str, attack: str, party: str, verdict: Verdict = "all") -> Cell:
    """Return a cell that was attacked, for it to come to this verdict."""
    figure, low, high = FIGURES[verdict]
    return Cell(
        method,
        attack,
        party,
        "attacked",
        measured_by="LnAcc" if attack == "ilrg" else "IIP",
        figure=figure,
        low=low,
        high=high,
        chance=0.25,
        tries=12,
        form="update, round 1",
        others={"LeAcc": 0.75} if attack == "ilrg" else {"images": 2.0, "PSNR": 12.34},
    )


def example(count: int = 2, *shape: int) -> Example:
    """Return images that differ from each other, some values of which lie outside of their range."""
    shape = shape or (1, 8, 8)
    generator = torch.Generator().manual_seed(1)
    recovered, true, neighbour = (
        torch.rand((count, *shape), generator=generator) * scale for scale in (1.5, 1.0, 0.5)
    )
    return Example(recovered, true, neighbour, (0.0, 1.0))


def audit_of(*cells: Cell) -> AuditResult:
    return AuditResult(
        config=asdict(AuditConfig(trials=12)),
        environment={"version": "9.9", "processor": "a <fast> one"},
        dataset="made-up data (<100 & more)",
        model="mlp",
        cells=list(cells),
        seconds=12.0,
        notes=["top-2: left out from trial 2 on: <it> was refused"],
    )


def with_cells(result: AuditResult, *more: Cell) -> AuditResult:
    return replace(result, cells=[*result.cells, *more])


def small_audit() -> AuditResult:
    """Return one with each status and verdict: two attacks, three methods, three parties."""
    images = example()
    cells = [
        cell("fedavg", "ilrg", "aggregator"),
        cell("fedavg", "ilrg", "client", "some"),
        Cell("fedavg", "ilrg", "authority", "nothing received", "no value came to it"),
        Cell("full-he", "ilrg", "aggregator", "nothing received", "no value came to it"),
        cell("full-he", "ilrg", "client", "chance"),
        Cell("full-he", "ilrg", "authority", "nothing received", "no value came to it"),
        cell("mask-crypt", "ilrg", "aggregator", "some"),
        replace(cell("mask-crypt", "ilrg", "client"), figure=0.95),
        Cell("mask-crypt", "ilrg", "authority", "nothing received", "no value came to it"),
        replace(cell("fedavg", "dlg", "aggregator"), example=images),
        replace(cell("fedavg", "dlg", "client", "some"), example=images),
        Cell("fedavg", "dlg", "authority", "nothing received", "no value came to it"),
        Cell("full-he", "dlg", "aggregator", "does not apply", "<nothing> is known of it"),
        cell("full-he", "dlg", "client", "chance"),
        Cell("full-he", "dlg", "authority", "not attacked", "the budget was over"),
        replace(cell("mask-crypt", "dlg", "aggregator", "some"), example=example(3)),
        replace(cell("mask-crypt", "dlg", "client"), low=-float("inf"), high=float("inf"), tries=1),
        Cell("mask-crypt", "dlg", "authority", "nothing received", "no value came to it"),
    ]
    return audit_of(*cells)


def audit_of_one_try() -> AuditResult:
    """Return one of a single cell that was attacked once."""
    return audit_of(
        replace(cell("fedavg", "ilrg", "aggregator"), low=-float("inf"), high=float("inf"), tries=1)
    )


def audit_of_sixteen() -> AuditResult:
    """Return one of every method and party, with an attack of a long name, many images in colour, and no figures."""
    verdicts: tuple[Verdict, ...] = ("all", "some", "chance")
    cells = []
    for attack in ("ilrg", "an-attack-of-somebody-s-own-with-a-long-name", "idlg"):
        for row, method in enumerate(SIXTEEN):
            for column, party in enumerate(PARTIES):
                if attack == "idlg" or (row and (row + column) % 5 == 4):
                    why = "a reason of some length, such as there is none of in the other cells of the table"
                    cells.append(Cell(method, attack, party.name, "does not apply", why))
                    continue
                one = cell(method, attack, party.name, verdicts[(row + column) % 3] if row else "all")
                shown = example(8, 3, 32, 32) if attack != "ilrg" and column < 2 else None
                cells.append(replace(one, example=shown))
    return audit_of(*cells)
