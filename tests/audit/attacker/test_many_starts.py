"""L-BFGS from several starts: the textbook's steps, each start by itself, and when it ends."""

from __future__ import annotations

import math

import torch

from shieldfl.audit.attacks.searches import Descent, least_of_many

SIZE = 12


def bowls(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and gradients of a smooth function with its least value, 0, at 1: curved by 1 to 20, and a little more."""
    curved = torch.linspace(1, 20, SIZE, dtype=points.dtype)
    away = points - 1
    return (curved * away**2 + away**4).sum(dim=1), 2 * curved * away + 4 * away**3


def starts(count: int) -> torch.Tensor:
    return torch.randn(count, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def ends(steps: int, found: float = 0.0, exact: float = 0.0, patience: int = 10_000) -> Descent:
    return Descent(steps, found, exact, patience)


def by_two_loops(point: torch.Tensor, steps: int) -> float:
    """Return the least value of one start, by L-BFGS as textbooks have it (Nocedal, Wright, algorithm 7.4)."""
    history: list[tuple[torch.Tensor, torch.Tensor]] = []
    value, gradient = (one[0] for one in bowls(point[None]))
    least = float(value)
    for _ in range(steps):
        direction, shares = gradient.clone(), []
        for s, y in reversed(history):
            shares.append((s @ direction) / (s @ y))
            direction -= shares[-1] * y
        if history:
            s, y = history[-1]
            direction *= (s @ y) / (y @ y)
        else:
            direction /= max(1.0, float(gradient.abs().sum()))
        for (s, y), share in zip(history, reversed(shares), strict=True):
            direction += (share - (y @ direction) / (s @ y)) * s
        point = point - direction
        before = gradient
        value, gradient = (one[0] for one in bowls(point[None]))
        history.append((-direction, gradient - before))
        least = min(least, float(value))
    return least


def test_steps_are_those_of_the_textbook():
    first = starts(3)
    for steps in (1, 2, 7, 19):
        together = least_of_many(bowls, first, ends(steps))
        for value, begins in zip(together.values, first, strict=True):
            assert math.isclose(float(value), by_two_loops(begins, steps), rel_tol=1e-6, abs_tol=1e-20)
        assert torch.allclose(bowls(together.points)[0], together.values)


def test_starts_do_not_depend_on_each_other_nor_on_how_long_the_history_is():
    first = starts(4)
    together = least_of_many(noisy, first, ends(350))
    alone = [least_of_many(noisy, one[None], ends(350)) for one in first]
    assert together.steps == 350  # the window of the history has moved to the front more than once
    assert torch.allclose(together.values, torch.cat([one.values for one in alone]), rtol=1e-5)


def noisy(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Bowls on a slope that is not smooth, where descent goes on."""
    values, gradients = bowls(points)
    return values + points.abs().sum(dim=1), gradients + points.sign()


def test_a_start_that_comes_to_no_number_is_left_and_others_go_on():
    def broken(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, gradients = bowls(points)
        return torch.where(points[:, 0] > 5, math.nan, values), gradients

    first = starts(3)
    first[1, 0] = 6.0
    least = least_of_many(broken, first, ends(50))
    assert least.values[1] == math.inf
    assert least.points[1].equal(first[1])
    assert float(least.values[[0, 2]].max()) < 1e-12


def test_once_one_has_found_it_the_others_are_left():
    first = starts(3)
    first[2] = 1.01
    asked: list[int] = []

    def counted(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append(len(points))
        return bowls(points)

    least = least_of_many(counted, first, ends(100, found=0.1, exact=1e-9))
    assert asked[0] == 3
    assert set(asked[1:]) == {1}
    assert least.values[2] <= 1e-9 < least.values[:2].min()


def test_a_start_without_progress_runs_out_of_patience():
    def flat(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(len(points)), torch.full_like(points, 1e-6)

    assert least_of_many(flat, starts(2), ends(1000, patience=20)).steps == 20
