"""The attack tables of the papers beside ours: SelectiveShield's table 4, SenseCrypt's figure 6, Alt-FL's figure 3.

    SHIELDFL_DATA=DIR python bench/audit_papers.py [--only selective-shield sense-crypt alt-fl] [--json FILE] [--full]

A table that is measured again takes the place of its old figures in the file; the others stay. All, in coarse, takes
some quarter of an hour of one core. ``--full`` is Alt-FL's whole grid, and says first how long it takes. When a figure
agrees with the paper's stands in ``paper_attacks/agreement.py``.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import torch

from paper_attacks import alt_fl, selective_shield, sense_crypt
from shieldfl.lab.simulation.runner import describe_environment

TABLES = {
    "selective-shield": lambda arguments: selective_shield.table(),
    "sense-crypt": lambda arguments: sense_crypt.table(),
    "alt-fl": lambda arguments: alt_fl.table(full=arguments.full, minutes=arguments.minutes),
}


def plain(value: Any) -> Any:
    """Return what JSON has: numbers that are none are null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    """Measure the tables, print them, and keep each as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES), help="by default all")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the tables, beside those that it has"
    )
    parser.add_argument("--full", action="store_true", help="all cells and tries of alt-fl")
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of processor time, for a coarse alt-fl (default 10)"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    kept = {}
    if arguments.json and arguments.json.exists():
        kept = json.loads(arguments.json.read_text())
    for name in arguments.only:
        print(f"== {name}", flush=True)
        began = time.process_time()
        found = TABLES[name](arguments)
        for difference in found["differences"]:
            print(f"differs: {difference}")
        print(f"agreement: {found['agreement']}")
        seconds = time.process_time() - began
        print(f"{seconds:.0f} s of one core", flush=True)
        kept[name] = plain(found) | {"seconds": seconds, "environment": describe_environment()}
        if arguments.json:
            arguments.json.write_text(json.dumps(kept, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
