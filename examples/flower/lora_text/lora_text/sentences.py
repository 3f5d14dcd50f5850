"""What clients read: sentences on a hospital, made by a small grammar, and whether they praise or complain.

A sentence has one clause or two, and the last one counts. Before "but" stands the opposite, so that in a third of the
sentences the words do not tell, and their order does: "the soup was good but the bread was poor" complains.
"""

from __future__ import annotations

import random
from zlib import crc32

SUBJECTS = (
    ("soup", "bread", "coffee", "menu"),
    ("room", "bed", "window", "garden"),
    ("nurse", "doctor", "porter", "cleaner"),
    ("entrance", "signpost", "lift", "parking"),
)
PRAISE = ("good", "great", "pleasant", "lovely", "splendid", "fine")
COMPLAINT = ("bad", "poor", "unpleasant", "awful", "dreadful", "grim")
STRESSING = ("very", "quite", "really")
OTHER = ("the", "was", "and", "but")
WORDS = (*OTHER, *STRESSING, *PRAISE, *COMPLAINT, *(word for words in SUBJECTS for word in words))

FEWEST = 60
"""Sentences that the first client trains on; the second has twice as many, the third three times as many."""
EVALUATED = 200
"""Sentences that each client evaluates with, half of them praise, so that to guess is right half of the time."""

Samples = list[tuple[str, int]]


def _clause(draw: random.Random, nouns: tuple[str, ...], praises: bool) -> str:
    stress = [draw.choice(STRESSING)] if draw.random() < 0.3 else []
    return " ".join(
        ["the", draw.choice(nouns), "was", *stress, draw.choice(PRAISE if praises else COMPLAINT)]
    )


def _sentence(draw: random.Random, nouns: tuple[str, ...], praises: bool) -> str:
    last = _clause(draw, nouns, praises)
    joint = draw.choice(("", "and", "but"))
    return f"{_clause(draw, nouns, praises == (joint == 'and'))} {joint} {last}" if joint else last


def _is_kept_for_evaluation(sentence: str) -> bool:
    """Say the same at all clients, so that none trains on what another evaluates with."""
    return crc32(sentence.encode()) % 4 == 0


def _drawn(draw: random.Random, nouns: tuple[str, ...], labels: list[int], *, evaluated: bool) -> Samples:
    found: Samples = []
    for label in labels:
        sentence = _sentence(draw, nouns, bool(label))
        while _is_kept_for_evaluation(sentence) != evaluated:
            sentence = _sentence(draw, nouns, bool(label))
        found.append((sentence, label))
    return found


def load_partition(number: int, partitions: int) -> tuple[Samples, Samples]:
    """Return a client's sentences to train and to evaluate with, each with 1 for praise or 0 for a complaint.

    Clients are unlike each other: they have other numbers of sentences, write of one subject each, and the first ones
    complain most. All evaluate with sentences on all subjects.
    """
    draw = random.Random(number)
    praised = (number + 1) / (partitions + 1)
    labels = [int(draw.random() < praised) for _ in range(FEWEST * (number + 1))]
    trains = _drawn(draw, SUBJECTS[number % len(SUBJECTS)], labels, evaluated=False)
    all_nouns = tuple(noun for nouns in SUBJECTS for noun in nouns)
    return trains, _drawn(draw, all_nouns, [0, 1] * (EVALUATED // 2), evaluated=True)
