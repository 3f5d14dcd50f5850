"""A method of a package of one's own beside three published ones, over three seeds: `python own_method.py`.

The method is ``examples/chosen_share``, installed by `pip install ./examples/chosen_share`.
"""

from __future__ import annotations

import shieldfl as sf

METHODS = ["chosen-share", "fedavg", "full-he", "fedml-he"]


def main() -> sf.ComparedRuns:
    """Run all of them and print means, deviations and differences."""
    result = sf.run("digits", METHODS, seeds=(0, 1, 2), model="linear", clients=5, rounds=3, local_epochs=2)
    print(result)
    for method in METHODS[1:]:
        less = result.difference("chosen-share", method, "accuracy")
        print(f"chosen-share less {method}, seed by seed: {less.values.round(4)}")
    return result


if __name__ == "__main__":
    main()
