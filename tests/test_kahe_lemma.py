"""kahe-proofs.md's lemma by exact enumeration: what two clients hide once sums of coins are known."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from fractions import Fraction
from math import comb

import numpy as np
import pytest

Coins = tuple[int, ...]


def outcomes(coins: int) -> list[Coins]:
    return list(itertools.product((0, 1), repeat=coins))


def value(coins: Coins) -> int:
    """A coefficient: half of the coins count up, the other half down."""
    half = len(coins) // 2
    return sum(coins[:half]) - sum(coins[half:])


def pair_sums(one: Coins, other: Coins) -> Coins:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def width(hint: Coins) -> int:
    return hint.count(1)


def known_part(hint: Coins) -> int:
    """What is known of a client's coefficient; the rest is a centred binomial of the hint's width."""
    half = len(hint) // 2
    settled = sum(each == 2 for each in hint[:half]) - sum(each == 2 for each in hint[half:])
    return settled - hint[half:].count(1) + width(hint) // 2


def centred_binomial(coins: int) -> dict[int, Fraction]:
    return {heads - coins // 2: Fraction(comb(coins, heads), 2**coins) for heads in range(coins + 1)}


def by_hint(coins: int) -> dict[Coins, list[tuple[int, int]]]:
    """The values of both clients in all equally likely outcomes, by the hint that they give."""
    values: dict[Coins, list[tuple[int, int]]] = defaultdict(list)
    for one, other in itertools.product(outcomes(coins), repeat=2):
        values[pair_sums(one, other)].append((value(one), value(other)))
    return values


def shares(counts: Counter) -> dict:
    return {key: Fraction(count, counts.total()) for key, count in counts.items()}


@pytest.mark.parametrize("coins", [2, 4, 6])
def test_given_the_hints_a_secret_is_a_centred_binomial_of_their_width(coins):
    """The hints give the sum of two secrets, and their widths are binomial.

    Given that sum alone, a secret is hypergeometric: what really leaks, since the hints give more away.
    """
    half, widths, of_sum = coins // 2, Counter(), defaultdict(Counter)
    for hint, values in by_hint(coins).items():
        assert shares(Counter(one - known_part(hint) for one, _ in values)) == centred_binomial(width(hint))
        assert {one + other for one, other in values} == {sum(hint[:half]) - sum(hint[half:])}
        widths[width(hint)] += len(values)
        for one, other in values:
            of_sum[one + other][one] += 1
    assert shares(widths) == {h: Fraction(comb(coins, h), 2**coins) for h in range(coins + 1)}
    for total, counts in of_sum.items():
        heads = total + coins
        assert shares(counts) == {
            one - coins // 2: Fraction(comb(coins, one) * comb(coins, heads - one), comb(2 * coins, heads))
            for one in range(max(0, heads - coins), min(coins, heads) + 1)
        }


@pytest.mark.parametrize("invented", [False, True])
def test_what_the_reduction_makes_is_distributed_like_the_real_thing(invented):
    """A ring of degree 1, so that everything can be enumerated: sample and hints together, not each alone.

    Beside an invented frame, which nobody made, the answer has its secret too; its error is in no ciphertext.
    """
    coins, q, a = 2, 97, 31
    real = Counter()
    for s_one, s_other, e_one, e_other in itertools.product(outcomes(coins), repeat=4):
        sample = (a * value(s_one) + value(e_one)) % q
        real[sample, pair_sums(s_one, s_other), () if invented else pair_sums(e_one, e_other)] += 1
        if invented:
            answer = value(s_one) + value(s_other)
            assert (sample - a * answer) % q == (value(e_one) - a * value(s_other)) % q
    made: dict[tuple, Fraction] = defaultdict(Fraction)
    for (s_hint, s_chance), (e_hint, e_chance) in itertools.product(drawn_hints(coins), repeat=2):
        hidden = itertools.product(
            centred_binomial(width(s_hint)).items(), centred_binomial(width(e_hint)).items()
        )
        for (s_rest, s_share), (e_rest, e_share) in hidden:
            challenge = a * s_rest + e_rest  # what the reduction is given, with the two widths
            sample = (challenge + a * known_part(s_hint) + known_part(e_hint)) % q
            made[sample, s_hint, () if invented else e_hint] += s_chance * e_chance * s_share * e_share
    assert made == shares(real)


def drawn_hints(coins: int) -> list[tuple[Coins, Fraction]]:
    """The hints that the reduction draws: a binomial width, then which coins it means, then the sums of all others."""
    drawn = []
    for hidden in range(coins + 1):
        chance = Fraction(comb(coins, hidden), 2**coins) / comb(coins, hidden) / 2 ** (coins - hidden)
        for chosen in itertools.combinations(range(coins), hidden):
            for others in itertools.product((0, 2), repeat=coins - hidden):
                rest = iter(others)
                hint = tuple(1 if position in chosen else next(rest) for position in range(coins))
                drawn.append((hint, chance))
    return drawn


def product(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of polynomials modulo X^N + 1, in Python's integers."""
    size = one.size
    full = np.convolve(one.astype(object), other.astype(object))
    full = np.concatenate([full, np.zeros(2 * size - full.size, object)])
    return full[:size] - full[size:]


def test_hints_and_the_other_clients_give_all_that_opening_shows():
    """Five clients of 84 coins: S, the sum of errors and the second ciphertext, without either of the two secrets."""
    degree, blocks, clients, coins, q = 16, 3, 5, 84, (1 << 50) - 27
    one, other = 1, 3
    random = np.random.default_rng(20)
    half = coins // 2
    shape = (clients, 1 + blocks, degree, coins)  # the secret, then an error for each block
    flips = random.integers(0, 2, shape)
    small = flips[..., :half].sum(-1) - flips[..., half:].sum(-1)
    uniform = random.integers(0, q, (blocks, degree))
    messages = random.integers(-(2**30), 2**30, (clients, blocks, degree))

    def encrypt(client: int, block: int) -> np.ndarray:
        masked = product(uniform[block], small[client, 0]) + small[client, 1 + block]
        return (masked + messages[client, block]) % q

    hints = flips[one] + flips[other]
    hint_sums = hints[..., :half].sum(-1) - hints[..., half:].sum(-1)
    others = [client for client in range(clients) if client not in (one, other)]
    known = hint_sums + small[others].sum(0)
    np.testing.assert_array_equal(known, small.sum(0))
    for block in range(blocks):
        total = sum(encrypt(client, block) for client in range(clients))
        opened = (total - product(uniform[block], known[0]) - known[1 + block]) % q
        np.testing.assert_array_equal(opened, messages[:, block].sum(0) % q)
        masks = product(uniform[block], hint_sums[0]) + hint_sums[1 + block]
        both = messages[one, block] + messages[other, block]
        second = (masks + both - encrypt(one, block)) % q
        np.testing.assert_array_equal(second, encrypt(other, block))
