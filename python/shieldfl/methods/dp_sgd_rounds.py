"""What each round asks of clients: encryption, DP-SGD, both, or synthetic data instead of their own.

It is Alt-FL's: algorithms 1 to 3, line 2, and section IV-B. The ratio ρ = ρ_a / ρ_tot, in lowest terms, is
the share of rounds of the *second* kind: ρ_a of every ρ_tot rounds. The first kind is the authentic round of
SI/DP and SI/HE and the encrypted round of PI, the second kind their synthetic round and PI's DP round.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError
from shieldfl.learning.local_update import GradientNoise, LocalUpdate, StartingPoint, samples_beside
from shieldfl.privacy.events import Noise
from shieldfl.rounds.plan import FederationPlan, GlobalModel, RoleContext
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.settings import TrainingSettings
from shieldfl.stateful import refuse_unless


@dataclass(frozen=True)
class RoundKind:
    """How a round protects what clients send; one with neither protection trains on synthetic data."""

    encrypts: bool = False
    """Whether the most sensitive share of the update is encrypted (S-HE)."""
    noises: bool = False
    """Whether clients train by DP-SGD."""

    @property
    def synthetic(self) -> bool:
        """Whether clients train on synthetic data, whose updates need no protection."""
        return not (self.encrypts or self.noises)


class KindsOfRounds:
    """Which of two kinds each round is, in a fixed alternation by ρ, such as "1/4" or "0.25".

    Rounds count from 1, and round t is of the first kind if and only if t mod ρ_tot < ρ_tot - ρ_a, as the
    algorithms have it. So ρ = 1/4 makes rounds 3, 7, 11, … the second kind, and from ρ = 1/2 on the run
    starts with it. With ρ = 0 every round is of the first kind, with ρ = 1 none is.

    ``noise`` is that of rounds with DP-SGD; ``synthetic_share`` is the synthetic part in rounds on a client's
    own data, see :attr:`StartingPoint.synthetic_share`.
    """

    def __init__(
        self,
        first: RoundKind,
        second: RoundKind,
        ratio: str = "0",
        noise: GradientNoise | None = None,
        synthetic_share: float = 0.0,
    ) -> None:
        self.ratio = read_ratio(ratio)
        self._first, self._second = first, second
        self._noise, self._synthetic_share = noise, synthetic_share
        self.alternates = first != second
        # Of a run that is long enough.
        kinds = (first,) * (self.ratio < 1) + (second,) * (self.ratio > 0)
        self.trains_privately = any(kind.noises for kind in kinds)
        self.encrypts = any(kind.encrypts for kind in kinds)

    def kind(self, round_number: int) -> RoundKind:
        """Return what this round does, counted from 1."""
        period = self.ratio.denominator
        return self._first if round_number % period < period - self.ratio.numerator else self._second

    def counts(self, total: int) -> Counter[RoundKind]:
        """Return how many of rounds 1 to ``total`` are of each kind; a kind that none has is not there."""
        # A formula, since who proposes a run chooses its rounds.
        periods, rest = divmod(total, self.ratio.denominator)
        of_period = self.ratio.denominator - self.ratio.numerator
        firsts = periods * of_period + max(min(rest, of_period - 1), 0)
        return Counter({self._first: firsts}) + Counter({self._second: total - firsts})

    def deviation(self, training: TrainingSettings, samples: int) -> float:
        """Return the deviation of all steps' noise on a parameter, for a client of so many samples."""
        assert self._noise is not None
        return self._noise.deviation(training, samples + samples_beside(samples, self._synthetic_share))

    def begun(self, round_number: int, start: StartingPoint) -> StartingPoint:
        """Return how a round is to be trained from its start."""
        kind = self.kind(round_number)
        return replace(
            start,
            noise=self._noise if kind.noises else None,
            synthetic=kind.synthetic,
            synthetic_share=0.0 if kind.synthetic else self._synthetic_share,
        )

    def noise_of(self, round_number: int, update: LocalUpdate) -> Noise | None:
        """Return the noise of an update; None if the round or the settings add none.

        Raises ParameterError if it was not trained by DP-SGD, or states impossible steps.
        """
        if not self.kind(round_number).noises or self._noise is None:
            return None
        done, multiplier = update.private_steps, self._noise.noise_multiplier
        if done is None:
            raise ParameterError(
                "this round trains by DP-SGD: pass what it did as LocalUpdate.private_steps, see "
                "StartingPoint.noise"
            )
        return Noise(multiplier, "sample", done.sample_rate, done.steps) if multiplier > 0.0 else None

    def check_noise(self, round_number: int, noise: Noise | None, *, trained: bool) -> None:
        """Raise WireFormatError for noise that no training has.

        Before training it is that of an earlier round.
        """
        multiplier = 0.0 if self._noise is None else self._noise.noise_multiplier
        noised = multiplier > 0.0 and self.kind(round_number).noises
        refuse_unless(not trained or noised == (noise is not None))
        refuse_unless(noise is None or (noise.multiplier, noise.unit) == (multiplier, "sample"))


class NoisesByDpSgd:
    """Base of methods whose ``dp_sgd`` says what their rounds ask of training."""

    dp_sgd: Any

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        return float(self.dp_sgd.deviation(training, samples))


class DpSgdClient(TrainingClient):
    """A client of a method whose ``dp_sgd`` says what rounds ask of training, None for nothing.

    Where buffers are not shared, it keeps its own.
    """

    changes: ClassVar = {"_noise": Noise | None}

    def __init__(
        self, method: Any, context: RoleContext, index: int, weight: int, initial: GlobalModel
    ) -> None:
        shared = method.shares_buffers
        super().__init__(index, initial, context, shares_buffers=shared, keeps_buffers=not shared)
        self.method, self.weight = method, weight
        self._rounds: KindsOfRounds | None = method.dp_sgd
        self._noise: Noise | None = None
        """Noise of the update that DP-SGD gave; None without any."""

    def check_changed(self) -> None:
        if self._rounds is not None:
            self._rounds.check_noise(self.round, self._noise, trained=self.has_trained)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        start = super()._begin_round(round_number, participants, model)
        return start if self._rounds is None else self._rounds.begun(round_number, start)

    def _keep(self, update: LocalUpdate) -> None:
        """Keep what is to be charged, too; refuse what was not trained by DP-SGD where that was asked for."""
        noise = None if self._rounds is None else self._rounds.noise_of(self.round, update)
        super()._keep(update)
        self._noise = noise

    @property
    def _is_synthetic(self) -> bool:
        return self._rounds is not None and self._rounds.kind(self.round).synthetic


def read_ratio(ratio: str) -> Fraction:
    """Return ρ in lowest terms. Raises ParameterError for what is no fraction, or lies outside of [0, 1]."""
    # Fraction would read "1e-99999999" too, and compute for ever.
    if not re.fullmatch(r"-?[0-9]{1,9}([/.][0-9]{1,9})?", ratio.strip()):
        raise ParameterError(f'the interleaving ratio {ratio[:32]!r} is no fraction: write it as in "1/4"')
    try:
        read = Fraction(ratio)
    except ZeroDivisionError as error:
        raise ParameterError(
            "the interleaving ratio has a schedule of zero rounds (denominator 0)"
        ) from error
    if not 0 <= read <= 1:
        raise ParameterError(f"the interleaving ratio must lie in [0, 1], got {read}")
    return read


def sample_delta(delta: float | None, plan: FederationPlan) -> float:
    """Return the delta that settings ask for: 1/N by default. Raises ParameterError where N is not known."""
    if delta is None and plan.samples is None:
        raise ParameterError("delta is 1/N by default: say how many samples there are, or set delta")
    return delta or 1 / max(plan.samples or 0, 2)
