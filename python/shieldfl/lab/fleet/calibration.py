"""Measuring this machine: the costs that simulations and plans rest on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.authority.total_opener import AnswerOpener
from shieldfl.build_info import build_info, machine_facts
from shieldfl.encryption.registry import DEFAULT_KEY_BITS, POOLED, KeyBits, Scheme, calibrations, scheme_named
from shieldfl.errors import RangeError
from shieldfl.lab.fleet.cost_source import DeviceProfile, ModelProfile, SchemeProfile
from shieldfl.learning import MODELS
from shieldfl.learning.local_update import median_seconds
from shieldfl.masks import SelectionLimits, select
from shieldfl.settings import Count, NotNegative, Settings, ThreadCounts, about

# Updates are small: well inside the default range of +-8.
_DEVIATION = 0.05
_MODEL = "Training step"
# Clients in the opened totals: an authority that answers lists of clients has more work for more of them.
_FEW_CLIENTS, _MANY_CLIENTS = 2, 18
# A few batches at a time, so that starting an epoch weighs as little as it does in training.
_BATCHES = 8


@dataclass(frozen=True)
class CalibrationSettings(Settings):
    """What is measured, and for how long."""

    schemes: Annotated[
        tuple[str, ...],
        Meta(min_length=1),
        about("Schemes to measure.", choices=calibrations, options=("--scheme",)),
    ] = calibrations()
    threads: Annotated[
        ThreadCounts | None,
        about(
            "Thread counts for encryption and training. 1 is always included. Default: 1, and the number "
            "of cores."
        ),
    ] = None
    values: Annotated[Count, about("Values of an update, for all schemes but slow ones.")] = 2**20
    slow_ciphertexts: Annotated[
        Count, about("Ciphertexts that slow schemes (Paillier) encrypt at a time, for each thread.")
    ] = 64
    key_bits: Annotated[KeyBits, about("Paillier key size, in bits.")] = DEFAULT_KEY_BITS
    seconds: Annotated[
        NotNegative, about("Seconds of measurement for each figure, with at least three repetitions.")
    ] = 0.5
    model: Annotated[
        str | None,
        about("Model whose training step is measured too; needs torch.", choices=MODELS, panel=_MODEL),
    ] = None
    sample_shape: Annotated[
        tuple[Count, ...], Meta(min_length=1), about("Shape of one sample.", panel=_MODEL)
    ] = (1, 28, 28)
    classes: Annotated[Count, about("Number of classes of the model.", panel=_MODEL)] = 10
    batch_size: Annotated[Count, about("Samples in a training step.", panel=_MODEL)] = 32

    def thread_counts(self) -> tuple[int, ...]:
        asked = (build_info()["threads"],) if self.threads is None else self.threads
        return tuple(sorted({1, *asked}))


def calibrate(
    settings: CalibrationSettings, on_step: Callable[[str], None] = lambda _: None
) -> DeviceProfile:
    """Measure this machine, in some minutes; ``on_step`` is called with the name of what is measured next.

    Raises ParameterError for an impossible model or sizes.
    """
    # Before what takes minutes: it refuses a model that cannot be.
    train = None if settings.model is None else _model_measurement(settings.model, settings)
    generator = np.random.default_rng(0)
    update = generator.normal(0.0, _DEVIATION, settings.values).astype(np.float32)
    gradient = generator.permutation(update)
    scores = np.abs(update * gradient)
    total = np.zeros(settings.values, dtype=np.float64)
    limits = SelectionLimits(budget=1.0)

    def per_value(step: Callable[[], Any]) -> float:
        return median_seconds(step, settings.seconds) / settings.values

    on_step("score and select")
    score = per_value(lambda: np.abs(update * gradient))
    select_positions = per_value(lambda: select(scores, update, limits, threads=1))
    add_clear = per_value(lambda: np.add(total, update, out=total))
    schemes = measure_schemes(update, settings, on_step)
    model = None
    if train is not None:
        on_step(f"training {settings.model}")
        model = train()
    return DeviceProfile(machine_facts(), tuple(schemes), score, select_positions, add_clear, model)


def _model_measurement(name: str, settings: CalibrationSettings) -> Callable[[], ModelProfile]:
    """Return a function that times SGD with the default momentum, on random samples."""
    # Only here, so that a profile of the schemes alone needs no torch.
    import torch

    from shieldfl.lab.simulation.federation import torch_threads
    from shieldfl.learning.local_trainer import train_locally
    from shieldfl.learning.networks import build_model
    from shieldfl.models.torch_bridge import parameter_layout
    from shieldfl.settings import TrainingSettings

    model = build_model(name, settings.sample_shape, settings.classes, seed=0)
    training = TrainingSettings(local_epochs=1, batch_size=settings.batch_size)
    generator = torch.Generator().manual_seed(0)
    samples = _BATCHES * settings.batch_size
    features = torch.randn((samples, *settings.sample_shape), generator=generator)
    labels = torch.randint(settings.classes, (samples,), generator=generator)

    step = partial(train_locally, model, features, labels, training, seed=0)

    def measure() -> ModelProfile:
        seconds = {}
        for threads in settings.thread_counts():
            with torch_threads(threads):
                seconds[threads] = median_seconds(step, settings.seconds, threads=threads) / samples
        return ModelProfile(name, settings.sample_shape, parameter_layout(model).size, seconds)

    return measure


def scheme_parameters(name: str, key_bits: int) -> Any:
    return scheme_named(name).calibrated_parameters(name.removesuffix(POOLED), key_bits)


def measure_schemes(
    update: NDArray[np.float32],
    settings: CalibrationSettings,
    on_step: Callable[[str], None] = lambda _: None,
) -> list[SchemeProfile]:
    """Measure schemes on an update, which slow ones repeat or cut.

    Raises RangeError should a sum be opened wrongly.
    """
    benches: dict[Any, _Bench] = {}
    profiles, seconds = [], settings.seconds
    for name in settings.schemes:
        on_step(name)
        scheme, parameters = scheme_named(name), scheme_parameters(name, settings.key_bits)
        if parameters not in benches:
            benches[parameters] = _Bench(scheme, parameters)
        bench, in_one = benches[parameters], int(parameters.values_per_ciphertext)
        encrypt_seconds, pool_seconds = {}, {}
        for threads in settings.thread_counts():
            count = in_one * settings.slow_ciphertexts * threads if scheme.is_slow else update.size
            ciphertexts = count / in_one
            bench.take(np.resize(update, count), threads)
            prepare = None
            if name.endswith(POOLED):
                prepare = bench.fill_pool
                # Used up before each repetition, since a pool keeps what is not taken.
                filling = median_seconds(prepare, seconds, bench.encrypt, threads)
                pool_seconds[threads] = filling / ciphertexts
            encrypt_seconds[threads] = median_seconds(bench.encrypt, seconds, prepare, threads) / ciphertexts
        bench.check(2.0**-parameters.fraction_bits)
        answer, answer_per_client = bench.answer_seconds(seconds) if scheme.enrols else (0.0, 0.0)
        measured = SchemeProfile(
            name=name,
            setting=repr(parameters),
            values_per_ciphertext=in_one,
            ciphertext_bytes=float(parameters.bytes_per_value) * in_one,
            encrypt_seconds=encrypt_seconds,
            add_seconds=median_seconds(bench.add, seconds, bench.begin_sum) / ciphertexts,
            open_seconds=median_seconds(bench.opener(), seconds) / ciphertexts,
            answer_seconds=answer / ciphertexts,
            answer_seconds_per_client=answer_per_client / ciphertexts,
            clients_open=scheme.enrols,
            adds_clear_values=scheme.adds_clear_values,
            pool_seconds=pool_seconds,
        )
        profiles.append(measured)
    return profiles


class _Bench:
    """The roles of one scheme, and the values that they handle; every measurement uses later rounds."""

    def __init__(self, scheme: Scheme, parameters: Any) -> None:
        self.scheme = scheme
        # Each repetition opens anew: in a round of its own if an authority answers a list once, otherwise
        # without the protection against two totals of a round, which costs nothing to check.
        self._authority: Any = KeyAuthority(
            parameters, min_clients=_FEW_CLIENTS, one_total_per_round=scheme.enrols, threads=1
        )
        self._public_key = self._authority.public_key
        self._keys = [self._public_key] * _FEW_CLIENTS
        if scheme.enrols:
            self._keys = [self._authority.enrol(client) for client in range(_MANY_CLIENTS)]
        self._round = 0

    def take(self, values: NDArray[np.float32], threads: int) -> None:
        self._encryptors = [self.scheme.Encryptor(key, threads=threads) for key in self._keys]
        self._values = values

    def _encrypted(self, client: int) -> bytes:
        frame: bytes = self._encryptors[client].encrypt(self._values, round=self._round).to_bytes()
        return frame

    def fill_pool(self) -> None:
        encryptor = self._encryptors[-1]
        encryptor.precompute(encryptor.ciphertexts_for(self._values.size))
        encryptor.wait()

    def encrypt(self) -> None:
        self._encrypted(-1)

    def begin_sum(self, clients: int = _FEW_CLIENTS) -> None:
        """Begin a round and its sum, without the last client's frame, which :meth:`add` adds."""
        self._round += 1
        self._aggregator = self.scheme.Aggregator(self._public_key, threads=1)
        *frames, self._last = map(self._encrypted, range(clients))
        for frame in frames:
            self._aggregator.add(frame)

    def add(self) -> None:
        self._aggregator.add(self._last)

    def _sum_up_anew(self, clients: int = _FEW_CLIENTS) -> None:
        self.begin_sum(clients)
        self.add()
        self._total = self._aggregator.total()

    def answer_seconds(self, seconds: float) -> tuple[float, float]:
        """Time a request and its answer: the seconds for any total, and the seconds for each client in it."""

        def answer() -> None:
            self._authority.sum_key(self._total.request())

        few, many = (
            median_seconds(answer, seconds, partial(self._sum_up_anew, clients))
            for clients in (_FEW_CLIENTS, _MANY_CLIENTS)
        )
        # Noise can make more clients seem faster where there is next to nothing to answer.
        per_client = max(0.0, many - few) / (_MANY_CLIENTS - _FEW_CLIENTS)
        return max(0.0, few - _FEW_CLIENTS * per_client), per_client

    def opener(self) -> Callable[[], NDArray[np.float64]]:
        """Return a function that opens the sum of another round."""
        self._sum_up_anew()
        opener = self._authority
        if self.scheme.enrols:
            key = self._keys[0]
            opener = AnswerOpener(self._public_key, key.opening_keys[0], _FEW_CLIENTS, (1.0, 1.0), 1)
            opener.take(self._authority.sum_key(self._total.request()))
        return lambda: opener.open(self._total)

    def check(self, step: float) -> None:
        sums = self.opener()()
        if not np.allclose(sums, _FEW_CLIENTS * self._values, rtol=0.0, atol=_FEW_CLIENTS * step):
            raise RangeError("a sum was opened wrongly: this build cannot be relied on")
