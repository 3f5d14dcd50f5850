"""A recurrent model on text, under full encryption and without: `python text_gru.py`.

The sentences are made up: which of two words comes more often decides the class.
"""

from __future__ import annotations

import random

import torch
from torch import nn

import shieldfl as sf

WORDS = ("the", "a", "good", "bad", "film", "book", "was", "is", "very", "quite", "and", "but")
LENGTH = 8


class Classifier(nn.Module):
    """An embedding, a GRU, and a linear layer on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(WORDS), 16)
        self.gru = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits (N, 2) of tokens (N, LENGTH)."""
        states, _ = self.gru(self.embedding(tokens))
        logits: torch.Tensor = self.head(states[:, -1])
        return logits


def sentences(count: int, seed: int) -> tuple[list[list[int]], list[int]]:
    """Return tokens and classes."""
    draw = random.Random(seed)
    tokens: list[list[int]] = []
    classes: list[int] = []
    while len(tokens) < count:
        words = [draw.choice(WORDS) for _ in range(LENGTH)]
        good, bad = words.count("good"), words.count("bad")
        if good != bad:
            tokens.append([WORDS.index(word) for word in words])
            classes.append(int(good > bad))
    return tokens, classes


def make_task() -> sf.Task:
    """Return the task; `shieldfl run --task text_gru:make_task` takes it, too."""
    return sf.Task(
        name="sentences",
        model=Classifier,
        train_data=sentences(1000, seed=0),
        test_data=sentences(300, seed=1),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    )


def main() -> sf.ComparedRuns:
    """Run both methods and print them side by side."""
    result = sf.run(make_task(), ["fedavg", "full-he"], clients=4, rounds=4, local_epochs=3, alpha=10.0)
    print(result)
    return result


if __name__ == "__main__":
    main()
