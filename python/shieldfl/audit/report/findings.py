"""What came out of an audit, in a few sentences that are read off its cells."""

from __future__ import annotations

from collections.abc import Sequence

from shieldfl.audit.report.reading import AttackTable, above_chance, attack_tables, figure_text, spoken
from shieldfl.audit.result import UNDEFENDED, AuditResult, Cell
from shieldfl.simulation.report.findings import joined

__all__ = ["LIMITS", "findings"]

_FEW = 10
"""Tries, below which an interval that is bootstrapped is far too narrow."""

LIMITS = "An attack that fails proves nothing: a better one may not. What was not attacked is not safe."


def findings(result: AuditResult) -> list[str]:
    """Return sentences on what each attack got and for whom, what nobody got, and what all of it does not say."""
    found = [_recovered(result, table) for table in attack_tables(result)]
    return [*found, *_nothing(result), *_untried(result), *_few(result), LIMITS]


def _recovered(result: AuditResult, table: AttackTable) -> str:
    """Say of whom the most was recovered, and what the same attack gets without protection."""
    protected = [cell for cell in table.cells.values() if cell.method != UNDEFENDED]
    above = sorted(
        (cell for cell in protected if result.verdict(cell) in ("some", "all")),
        key=above_chance,
        reverse=True,
    )
    bare = _undefended(result, table)
    if above:
        return f"{table.attack} recovered most {_best(result, above)}. {bare}"
    tried = sum(cell.status == "attacked" for cell in protected)
    if not tried:
        return f"{table.attack} could be tried on no protected update. {bare}"
    if all(result.verdict(cell) == "too few trials" for cell in protected if cell.status == "attacked"):
        return f"{table.attack} was tried too few times to tell its figures from chance. {bare}"
    return f"{table.attack} got nothing above chance of any protected method. {bare}"


def _best(result: AuditResult, above: Sequence[Cell]) -> str:
    top = above[0]
    same = [cell for cell in above if figure_text(cell) == figure_text(top)]
    parties = [spoken(cell.party) for cell in same if cell.method == top.method]
    methods = list(dict.fromkeys(cell.method for cell in same if cell.method != top.method))
    beside = ", no less than without protection" if result.verdict(top) == "all" else ""
    also = f"; as much under {joined(methods)}" if methods else ""
    return (
        f"for {joined(parties)} under {top.method}: {top.measured_by} {top.figure:.2f} where chance has "
        f"{top.chance:.2f}{beside}{also}"
    )


def _undefended(result: AuditResult, table: AttackTable) -> str:
    """Say what the attack is worth, by what it gets of plain averaging."""
    cell = result.undefended(table.attack)
    if cell is None:
        return (
            "There is no figure of it for the aggregator of plain averaging, so nothing says how good it is."
        )
    figures = f"{cell.measured_by} {cell.figure:.2f}, chance {cell.chance:.2f}"
    verdict = result.verdict(cell)
    if verdict == "too few trials":
        return f"Of plain averaging the aggregator gets {figures}, by too few trials to say more."
    if verdict == "chance":
        return (
            f"Nor is what the aggregator gets of plain averaging above chance ({figures}): "
            "here this attack is too weak to tell anything of a method."
        )
    return f"Of plain averaging, which protects nothing, the aggregator gets {figures}."


def _nothing(result: AuditResult) -> list[str]:
    """Say from which methods no party got more than chance, and which parties got no more of any method."""
    protected = [cell for cell in result.cells if cell.method != UNDEFENDED]
    methods = _without_success(result, protected, [cell.method for cell in protected])
    parties = _without_success(result, protected, [cell.party for cell in protected])
    said = []
    tried = "from the attacks that were tried"
    if methods:
        said.append(f"Under {joined(methods)} nobody got more than chance {tried}.")
    if parties:
        names = joined([spoken(party) for party in parties])
        said.append(
            f"{names[0].upper()}{names[1:]} got no more than chance under any protected method {tried}."
        )
    return said


def _without_success(result: AuditResult, cells: Sequence[Cell], groups: Sequence[str]) -> list[str]:
    """Return the groups of cells in which something was tried or nothing came, and all of that is what chance has.

    Groups are told by one name for each cell. One with a cell of too few trials is left out: nothing is known of it.
    """
    verdicts: dict[str, set[str]] = {}
    for cell, group in zip(cells, groups, strict=True):
        verdicts.setdefault(group, set()).add(result.verdict(cell))
    return [group for group, found in verdicts.items() if "chance" in found <= {"chance", "not attacked"}]


def _untried(result: AuditResult) -> list[str]:
    verdicts = [result.verdict(cell) for cell in result.cells]
    counted = {
        "not attacked": verdicts.count("not attacked"),
        "attacked too few times to tell": verdicts.count("too few trials"),
    }
    parts = [f"{count} {'was' if count == 1 else 'were'} {what}" for what, count in counted.items() if count]
    return [f"Of {len(verdicts)} cells {joined(parts)}."] if parts else []


def _few(result: AuditResult) -> list[str]:
    most = max(cell.tries for cell in result.cells)
    if not 0 < most < _FEW:
        return []
    return [
        f"No cell has more than {most} {'try' if most == 1 else 'tries'}: intervals of so few are too narrow."
    ]
