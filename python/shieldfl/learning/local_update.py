"""What a client trains from, what training gives it, and what its steps take."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import FloatVector
from shieldfl.errors import ParameterError, RangeError
from shieldfl.settings import TrainingSettings

DoubleVector = NDArray[np.float64]


@dataclass(frozen=True)
class GradientNoise:
    """DP-SGD: clips every sample's gradient to a norm, and noises a batch's sum by a multiple of the norm."""

    noise_multiplier: float
    max_grad_norm: float

    def deviation(self, training: TrainingSettings, samples: int) -> float:
        """Return the standard deviation of the noise on each parameter after training on so many samples.

        Weight decay, which shrinks the noise of early steps a little, is left out.
        """
        steps_per_epoch = math.ceil(samples / training.batch_size)
        of_a_step = self.noise_multiplier * self.max_grad_norm * steps_per_epoch / samples
        # What a step's gradient moves parameters by, in learning rates, when momentum has carried it to the
        # end.
        left = range(1, training.local_epochs * steps_per_epoch + 1)
        carried = sum(((1 - training.momentum**step) / (1 - training.momentum)) ** 2 for step in left)
        return training.learning_rate * of_a_step * math.sqrt(carried)


@dataclass(frozen=True)
class StartingPoint:
    """What a client trains from, and how: float32 parameters (P,) and float buffers (B,)."""

    parameters: FloatVector
    buffers: FloatVector
    scores: str | None = None
    """Kind of scores that training has to compute for each parameter, see ``LocalUpdate.scores``: a Fisher
    information (``"full-batch"``, ``"batch"``, ``"per-sample"``), what the loss would change without a
    parameter (``"taylor"``), the mean over samples of the gradient's magnitude (``"label"``), or the gradient
    of all data (``"gradient"``); None for no scores."""
    noise: GradientNoise | None = None
    """Clipping and noise of training by DP-SGD; None for training without."""
    synthetic: bool = False
    """Whether to train on the synthetic data set instead of the client's own data."""
    synthetic_share: float = 0.0
    """Share of synthetic samples in training beside the client's own, of both together: in [0, 1)."""
    round: int | None = None
    """Round that begins with it; None for a model that is only looked at, and gives no update."""
    beginning: int = 0
    """How often the client has begun a round, this one included; a round with another model counts again."""

    def trained(
        self,
        parameters: FloatVector,
        buffers: FloatVector,
        scores: FloatVector | None = None,
        private_steps: PrivateSteps | None = None,
    ) -> LocalUpdate:
        return LocalUpdate(self.round, parameters, buffers, scores, private_steps, self.beginning)


def samples_beside(samples: int, share: float) -> int:
    """Return how many synthetic samples beside so many of a client's own make up this share of all."""
    return round(share / (1.0 - share) * samples)


@dataclass(frozen=True)
class PrivateSteps:
    """What DP-SGD did: so many steps, each on a sample of the data."""

    steps: int
    sample_rate: float


@dataclass(frozen=True)
class LocalUpdate:
    """What training gave a client; made by :meth:`StartingPoint.trained`."""

    round: int | None
    """Round that the update was trained in; None for none.

    Rounds protect differently: an update of an encrypted one must not go out in clear.
    """
    parameters: FloatVector
    """Parameters after training, float32 (P,)."""
    buffers: FloatVector
    """Float buffers (BatchNorm statistics) after training, float32 (B,)."""
    scores: FloatVector | None
    """Scores that ``StartingPoint.scores`` asked for, float32 (P,); None if it asked for none.

    Fisher informations are normalised to [0, 1] in each layer; gradients are signed.
    """
    private_steps: PrivateSteps | None = None
    """Steps of training by DP-SGD; None without it."""
    beginning: int = 0
    """``StartingPoint.beginning`` of the starting point that it was trained from."""

    def copied(self) -> LocalUpdate:
        """Return the update with read-only copies of its vectors: training may overwrite its own."""
        return replace(
            self,
            parameters=_copied(self.parameters),
            buffers=_copied(self.buffers),
            scores=None if self.scores is None else _copied(self.scores),
        )

    def check(self, parameters: int, buffers: int) -> None:
        """Raise ParameterError for vectors of other sizes, RangeError for NaN or infinity in the model."""
        scores_fit = self.scores is None or self.scores.shape == (parameters,)
        if not scores_fit or self.parameters.shape != (parameters,) or self.buffers.shape != (buffers,):
            raise ParameterError(
                f"an update of this model has {parameters} parameters, as many scores, and {buffers} buffer "
                "values: make it with the functions of shieldfl.models.torch_bridge"
            )
        if not (np.isfinite(self.parameters).all() and np.isfinite(self.buffers).all()):
            raise RangeError(
                "training gave NaN or infinity: lower the learning rate or check the client's data"
            )

    def checked_scores(self) -> FloatVector:
        if self.scores is None:
            raise ParameterError("the method needs sensitivity scores: pass them in the LocalUpdate")
        if not np.isfinite(self.scores).all():
            raise RangeError("a sensitivity is NaN or infinite: lower the learning rate or check the data")
        return self.scores


def _copied(vector: FloatVector) -> FloatVector:
    copy = np.array(vector, dtype=np.float32)
    copy.setflags(write=False)
    return copy


def contraction(round_number: int, client: int, start: StartingPoint) -> LocalUpdate:
    """Move a tenth of the way to a target that is the client's own in this round; random scores up to 1."""
    generator = np.random.default_rng([round_number, client])
    vectors = (start.parameters, start.buffers)
    targets = [generator.normal(0.0, 1.0, one.size).astype(np.float32) for one in vectors]
    scores = generator.random(start.parameters.size, dtype=np.float32)
    step = np.float32(0.1)
    return start.trained(
        start.parameters + step * (targets[0] - start.parameters),
        start.buffers + step * (targets[1] - start.buffers),
        scores,
        None if start.noise is None else PrivateSteps(steps=2, sample_rate=0.5),
    )


class StageClock:
    """Adds up wall-clock seconds under names. Stages do not overlap: an inner one is taken from the outer."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._inner = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Charge the time spent inside to ``name``, also when an exception ends it."""
        outer_inner, self._inner = self._inner, 0.0
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self._seconds[name] += elapsed - self._inner
            self._inner = outer_inner + elapsed

    def add(self, seconds: Mapping[str, float]) -> None:
        for name, spent in seconds.items():
            self._seconds[name] += spent

    def seconds(self) -> dict[str, float]:
        return dict(self._seconds)

    def take(self) -> dict[str, float]:
        seconds = self.seconds()
        self._seconds.clear()
        return seconds


_FEWEST = 3


def median_seconds(
    step: Callable[[], Any], seconds: float, prepare: Callable[[], Any] | None = None, threads: int = 1
) -> float:
    """Time a step until ``seconds`` and three repetitions are over, after one for warming up.

    Return the median.

    ``prepare`` runs before each repetition and is not counted in its time. A step of one thread is timed by
    the processor time of this process, so that other programs, which take the processor away from time to
    time, do not make it seem slower. With more threads, which wait for each other, it is the time on the
    clock.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) <= _FEWEST or time.perf_counter() - begin < seconds:
        if prepare is not None:
            prepare()
        start = clock()
        step()
        times.append(clock() - start)
    return median(times[1:])
