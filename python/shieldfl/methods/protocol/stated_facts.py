"""What a method says of itself, before there is a federation: on its class, and what its settings make of it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from shieldfl.masks import Mask
from shieldfl.methods.protocol.named_method import NamedMethod
from shieldfl.methods.protocol.phase import SyntheticDemand
from shieldfl.privacy.events import PrivacyReading
from shieldfl.settings import TrainingSettings

if TYPE_CHECKING:
    from torch import nn

__all__ = ["StatedFacts"]


class StatedFacts:
    """The part of a method that readers, reports and whoever trains for it look at."""

    names: ClassVar[tuple[NamedMethod, ...]] = ()
    """The names that it is found under, with what is said of each; a base class has none."""
    privacy_reading: PrivacyReading
    """For whom, against whom and between which neighbours its epsilon is, if it has one: on the class under its default
    settings, and see ``reading_with``."""
    aggregator_sees: str
    """What the aggregator can read, in words; on the class under its default settings."""

    weighs_all_alike: bool = False
    """Whether clients count alike whatever their weights are."""
    schemes: ClassVar[tuple[str, ...]] = ()
    """How updates can be encrypted, by the registry's names; nothing for a method without keys."""
    averages_all: ClassVar[bool] = True
    """Whether the weighted mean of all updates is what it gives, up to rounding, where no noise is added."""
    hides_all: bool = False
    """Whether ciphertexts, and what :data:`PUBLIC_PARTS` names, are all that ever leaves a client."""
    clients_keep_nothing: ClassVar[bool] = False
    """Whether what clients send in a round follows from the model that they get and their data, and not from which
    rounds they were in before: of the method, whatever the model keeps. Only then is there an epsilon against outsiders
    alone."""

    scores: str | None = None
    """What training must bring along for each parameter, see ``StartingPoint.scores``, in those rounds that ask."""
    synthetic_demand: SyntheticDemand | None = None
    """None where no round trains on synthetic data."""
    trained: Mask | None = None
    """Those of the P parameters that training changes; None for all."""
    buffer_factor: float = 1.0
    """What buffers are multiplied by before they are encrypted, a power of two."""
    interleaving: Fraction | None = None
    """The share of the second of two kinds of rounds; None where all are alike."""
    delta: float = math.nan
    """What its epsilon belongs to; NaN for a method without noise."""

    @property
    def states_epsilon(self) -> bool:
        """Whether it has an epsilon, so that nothing may leave clients that is not counted."""
        return not math.isnan(self.delta)

    @classmethod
    def named(cls, name: str) -> NamedMethod:
        """Return what the class says of one of its names."""
        return next(one for one in cls.names if one.name == name)

    @classmethod
    def trains_privately(cls, name: str, settings: Any) -> bool:
        """Say whether any round trains by DP-SGD: not on a model that mixes samples."""
        return False

    @classmethod
    def why_no_sum_noise(cls, name: str) -> str | None:
        """Say why the sums of a method of this name cannot have noise, as what follows its name; None where they can.

        They can where its settings ask for noise, by ``asked_noise``.
        """
        if hasattr(cls.named(name).settings, "asked_noise"):
            return None
        return "has no setting for noise on sums: leave it out, or take full-he or ddp-fedavg"

    @classmethod
    def reading_with(cls, settings: Any) -> PrivacyReading:
        """Return how its figures are to be read under these settings: that of the class where they decide nothing."""
        return cls.privacy_reading

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        """Return the standard deviation of the noise on each noised value of a client's update; 0 without noise.

        What has a share of a sum's noise alone is not meant: its client states it for each round.

        Everybody can work it out: it follows from settings, from how the client trains and on how many samples, and
        from how many clients take part.
        """
        return 0.0

    @classmethod
    def adapted(cls, model: nn.Module, settings: Any) -> nn.Module:
        """Return the module that clients train: here the model itself.

        Its parameters are those of the plan, and the model must not be changed. Raises ParameterError or RangeError for
        a model that the method cannot train.
        """
        return model
