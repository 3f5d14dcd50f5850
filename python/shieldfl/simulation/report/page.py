"""The report of a run: its figures as JSON and CSV, plots as files, and one page that holds everything."""

from __future__ import annotations

from pathlib import Path

from shieldfl.errors import ParameterError
from shieldfl.reporting.figures import NARROW, WIDE, write_figure
from shieldfl.reporting.output_files import write_json, write_whole
from shieldfl.reporting.page import Facts, Section, Table, Terms, Text, inline_drawing, render_page
from shieldfl.simulation.report.plots import PLOTS
from shieldfl.simulation.report.summary import (
    compared_rows,
    describe_run,
    findings,
    footnotes,
    rounds_csv,
    summary_csv,
)
from shieldfl.simulation.run_result import RunResult

__all__ = ["write_report"]

_TERMS = {
    "Accuracy": "On the test set, twice: of the global model, and as the mean over all clients of their merged models, "
    "in which a client keeps its own values on its personalised positions. Both are the same where nothing is "
    "personalised.",
    "Zones": "Every parameter of a client is in one zone. Encrypted values are summed under encryption, and only sums "
    "of several clients are ever opened. Personalised values stay with the client. Noise values are sent with noise "
    "added, clear ones as they are. Personalised and noise zones differ between clients, so shares are means over the "
    "clients of a round.",
    "Time": "What a stage took all roles together: the work of the clients is added up, though in a real federation "
    "they work at the same time, each on its own machine. Methods that train alike share one figure for training, the "
    "median of theirs, so that what differs between them is protection. “Time a round” is wall-clock time on this "
    "machine with all roles in one process, without evaluation and without a network. Both are means over the rounds "
    "after the first. Where kinds of rounds alternate, the first counts like the others.",
    "Bytes": "All messages of a round that one client sends and receives, as they would travel, headers included; a "
    "mean over the clients of a round, and over the rounds after the first.",
    "ε and δ": "Privacy loss over all rounds so far, for a whole client or for one sample, and against whom, as the "
    "table says; a method's note says what it counts. Figures for different units cannot be compared. ∞ means that "
    "values, or a mask that follows from them, or, where the aggregator opens sums, a sum were readable without noise, "
    "or that something was sent that depends on a sum opened without noise. – means that nothing readable was sent: "
    "encryption has no ε.",
    "Hidden from the aggregator": "The share that is encrypted of all parameters' values that were sent, and what else "
    "is readable, such as a mask. Values with noise, and updates from synthetic data, are not hidden.",
}


def write_report(result: RunResult, directory: str | Path) -> list[Path]:
    """Write figures, plots and ``index.html`` to a folder, which is made where it does not exist, and return the paths.

    ``result.json`` has everything, ``summary.csv`` a line for each method, ``rounds.csv`` one for each method and
    round; plots are SVG, PDF and PNG files. Files of an earlier report are replaced. The page, the last of the paths,
    needs no other file and nothing from a network. Raises ParameterError for a result without a round, OSError.
    """
    if not result.methods or any(not method.rounds for method in result.methods):
        raise ParameterError("the run has no finished round: there is nothing to report")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / name for name in ("result.json", "summary.csv", "rounds.csv")]
    write_json(written[0], result.to_json())
    write_whole(written[1], summary_csv(result))
    write_whole(written[2], rounds_csv(result))
    names = [method.method for method in result.methods]
    rows = [(row.label, *row.cells) for row in compared_rows(result)]
    note = f"× compares with {names[0]}." if len(names) > 1 else ""
    sections = [Section("At a glance", [Table("Figures by method", ["figure", *names], rows, note)])]
    for plot in PLOTS:
        wide, narrow = plot.draw(result, WIDE), plot.draw(result, NARROW)
        written += write_figure(wide, folder / plot.name)
        shapes = {"wide": wide, "narrow": narrow}
        drawing = inline_drawing(plot.name, plot.title, plot.explanation, plot.say(result), shapes)
        sections.append(Section(plot.title, [drawing]))
    if notes := footnotes(result):
        sections.append(Section("Notes", [Text(note, of) for of, note in notes]))
    page = render_page(
        " and ".join(names) if len(names) < 3 else f"{len(names)} methods side by side",
        findings(result),
        describe_run(result),
        [*sections, Section("How to read this", [Terms(_TERMS)])],
        beside=[
            Section("Run", [Facts(result.config)]),
            Section("Environment", [Facts(result.environment)]),
            *(
                Section(f"Settings of {one.method}", [Facts(one.settings)])
                for one in result.methods
                if one.settings
            ),
        ],
        warning=str(result.interrupted or ""),
        files=written,
    )
    written.append(folder / "index.html")
    write_whole(written[-1], page)
    return written
