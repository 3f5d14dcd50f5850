"""Local training against plain PyTorch, its determinism, and its refusals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from learning.separable_samples import CLASSES, model, samples
from shieldfl.errors import ParameterError
from shieldfl.learning.local_trainer import MakeOptimizer, _Sgd, evaluate, train_locally
from shieldfl.learning.scores import FisherAccumulator, full_batch_gradient
from shieldfl.models.torch_bridge import flatten, parameter_layout
from shieldfl.settings import TrainingSettings


def test_frozen_parameters_stay_and_stale_gradients_do_not_count() -> None:
    features, labels = samples(20)
    fresh, stale = model(), model()
    for trained in (fresh, stale):
        next(iter(trained.parameters())).requires_grad_(False)
    for parameter in stale.parameters():
        parameter.grad = torch.full_like(parameter, 5.0)
    frozen = next(iter(fresh.parameters())).detach().clone()
    for trained in (fresh, stale):
        train_locally(trained, features, labels, TrainingSettings(1, 8, 0.1, weight_decay=0.1), seed=0)
    assert flatten(fresh).tobytes() == flatten(stale).tobytes()
    assert torch.equal(next(iter(stale.parameters())), frozen)
    assert all(parameter.grad is None for parameter in fresh.parameters())


def test_every_sample_is_used_once_per_epoch() -> None:
    seen: list[float] = []

    class Recorder(nn.Linear):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            seen.extend(batch[:, 0].tolist())
            return super().forward(batch)

    class Counting:
        def zero_grad(self, set_to_none: bool) -> None: ...

        def step(self) -> None:
            steps.append(len(seen))

    features = torch.arange(10, dtype=torch.float32).reshape(10, 1)
    steps: list[int] = []
    train_locally(
        Recorder(1, 2),
        features,
        torch.zeros(10, dtype=torch.int64),
        TrainingSettings(3, 4, 1e-3),
        seed=1,
        optimizer=lambda _: Counting(),
    )
    assert steps == [4, 8, 10, 14, 18, 20, 24, 28, 30]
    epochs = [seen[start : start + 10] for start in (0, 10, 20)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_one_step_has_moved_by_the_gradient_that_was_taken_up() -> None:
    features, labels = samples(20)
    plain, scored = model(), model()
    gradient = full_batch_gradient(scored, features, labels)
    start = flatten(scored)
    accumulator = FisherAccumulator(parameter_layout(scored))
    settings = TrainingSettings(1, 20, 0.5)
    train_locally(plain, features, labels, settings, seed=0)
    train_locally(scored, features, labels, settings, seed=0, gradients=accumulator)
    assert flatten(plain).tobytes() == flatten(scored).tobytes()
    np.testing.assert_allclose(accumulator.scores(), gradient**2, rtol=1e-2, atol=1e-8)
    np.testing.assert_allclose(flatten(scored), start - 0.5 * gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "follows"),
    [
        (TrainingSettings(3, 8, 0.05), True),
        (TrainingSettings(3, 8, 0.05, momentum=0.9), True),
        (TrainingSettings(3, 8, 1e-3, momentum=0.5), True),
        (TrainingSettings(3, 8, 0.05, momentum=0.9, weight_decay=0.1), False),
        (TrainingSettings(3, 8, 1e-4, momentum=0.9), False),
    ],
)
def test_gradients_sum_to_the_same_however_they_are_taken_up(
    settings: TrainingSettings, follows: bool
) -> None:
    """By what SGD has moved, where that tells it, and by each gradient, as under an optimizer of one's own."""
    features, labels = samples(70)

    def scores(optimizer: MakeOptimizer | None) -> tuple[np.ndarray, int]:
        trained = model()
        next(trained.parameters()).requires_grad_(False)

        class Counting(FisherAccumulator):
            reads = 0

            def update(self, model: nn.Module) -> None:
                self.reads += 1
                super().update(model)

        accumulator = Counting(parameter_layout(trained))
        train_locally(trained, features, labels, settings, 3, accumulator, optimizer=optimizer)
        return accumulator.scores(), accumulator.reads

    def own(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            parameters, settings.learning_rate, settings.momentum, weight_decay=settings.weight_decay
        )

    (of_moves, reads), (of_each, all_reads) = scores(None), scores(own)
    assert (reads, all_reads) == (0 if follows else 27, 27)
    assert of_each.max() > 0.0
    np.testing.assert_allclose(
        np.sqrt(of_moves), np.sqrt(of_each), rtol=1e-3, atol=1e-5 * of_each.max() ** 0.5
    )


def test_the_loss_is_the_sample_mean_of_the_last_epoch() -> None:
    features, labels = samples(21)
    expected = float(nn.functional.cross_entropy(model()(features), labels).detach())
    # A step size this small does not move a float32 weight, so batches of unequal size must average exactly.
    loss = train_locally(model(), features, labels, TrainingSettings(2, 8, 1e-12), seed=0)
    assert loss == pytest.approx(expected, rel=1e-5)


def test_a_client_without_data_is_refused() -> None:
    features, labels = samples(3)
    with pytest.raises(ParameterError, match="client has no data"):
        train_locally(model(), features[:0], labels[:0], TrainingSettings(), seed=0)
    with pytest.raises(ParameterError, match="client has no data"):
        evaluate(model(), features[:0], labels[:0])
    with pytest.raises(ParameterError, match="3 samples but 2 labels"):
        train_locally(model(), features, labels[:2], TrainingSettings(), seed=0)


def test_accuracy_counts_hits_whatever_the_batch_size() -> None:
    class FirstFeature(nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return nn.functional.one_hot(batch[:, 0].long(), 3).float()

    features = torch.tensor([[0.0], [1.0], [2.0], [0.0], [1.0]])
    labels = torch.tensor([0, 1, 2, 1, 0])
    for times in (1, 500):
        assert evaluate(FirstFeature(), features.repeat(times, 1), labels.repeat(times)) == pytest.approx(0.6)


def test_evaluation_does_not_touch_statistics_or_modes() -> None:
    trained = model("simple-cnn")
    trained.train()
    list(trained.children())[1].eval()
    modes = [module.training for module in trained.modules()]
    state = {key: value.clone() for key, value in trained.state_dict().items()}
    evaluate(trained, *samples(30))
    assert [module.training for module in trained.modules()] == modes
    assert all(torch.equal(value, state[key]) for key, value in trained.state_dict().items())


class _Clamped(nn.Linear):
    """A user's own, which keeps its weights small by itself."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.clamp_(-0.05, 0.05)
        return super().forward(batch)


@pytest.mark.parametrize("kind", ["embedding", "own module", "own loss", "hook"])
def test_gradients_are_read_one_by_one_where_other_things_than_steps_move_weights(kind: str) -> None:
    """Else what they moved would be taken for gradients, and sensitive positions for others."""
    torch.manual_seed(0)
    features = torch.randint(0, 5, (40, 3)) if kind == "embedding" else torch.randn(40, 3)
    first = {
        "embedding": lambda: nn.Sequential(nn.Embedding(5, 4, max_norm=0.3), nn.Flatten(), nn.Linear(12, 2)),
        "own module": lambda: nn.Sequential(_Clamped(3, 8), nn.ReLU(), nn.Linear(8, 2)),
        "own loss": lambda: nn.Linear(3, 2),
        "hook": lambda: nn.Linear(3, 2),
    }[kind]()
    labels = torch.randint(0, 2, (40,))

    def shrink(module: nn.Module) -> None:
        module.weight.data.mul_(0.9)

    def shrinking(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            first.weight.mul_(0.9)
        return nn.functional.cross_entropy(outputs, targets)

    if kind == "hook":
        first.register_forward_pre_hook(lambda module, _: shrink(module))
    read: list[torch.Tensor] = []
    with torch.random.fork_rng():
        accumulator = FisherAccumulator(parameter_layout(first))
        update = accumulator.update

        def reading(module: nn.Module) -> None:
            read.append(torch.cat([one.grad.flatten() for one in module.parameters()]))
            update(module)

        accumulator.update = reading  # type: ignore[method-assign]
        loss = shrinking if kind == "own loss" else None
        train_locally(first, features, labels, TrainingSettings(2, 8, 0.5), 1, accumulator, loss)
    assert len(read) == 10
    np.testing.assert_allclose(
        accumulator.scores(), torch.stack(read).mean(0).square().numpy(), rtol=1e-4, atol=1e-12
    )


class TwoHeads(nn.Module):
    """The heads take turns: each has a gradient for every other batch, the body for all."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.body, self.heads = nn.Linear(36, 8), nn.ModuleList(nn.Linear(8, CLASSES) for _ in range(2))
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / 4
        self.batches = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        return self.heads[self.batches % 2](self.body(batch.flatten(1)).relu())


class BaseAndDelta(nn.Module):
    """Whose two parameters autograd gives gradients that lie in one memory."""

    def __init__(self) -> None:
        super().__init__()
        drawn = torch.randn(2, CLASSES * 36, generator=torch.Generator().manual_seed(3)) / 8
        self.base, self.delta = nn.Parameter(drawn[0].reshape(CLASSES, 36)), nn.Parameter(drawn[1])

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        weight = self.base.view(CLASSES, 36) + self.delta.view(CLASSES, 36)
        return nn.functional.linear(batch.flatten(1), weight)


def test_gradients_of_two_parameters_may_lie_in_one_memory() -> None:
    model = BaseAndDelta()
    model(samples(4)[0]).square().sum().backward()
    assert model.base.grad.data_ptr() == model.delta.grad.data_ptr()


@pytest.mark.parametrize(
    "made", [TwoHeads, BaseAndDelta, model, lambda: model("simple-cnn")], ids=["heads", "delta", "mlp", "cnn"]
)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
def test_steps_equal_those_of_torchs_own_optimizer_bit_for_bit(
    made: Callable[[], nn.Module], momentum: float, weight_decay: float
) -> None:
    features, labels = samples(30)
    settings = TrainingSettings(3, 8, 0.1, momentum, weight_decay)
    trained, expected = made(), made()
    train_locally(trained, features, labels, settings, seed=4)
    optimizer = torch.optim.SGD(expected.parameters(), 0.1, momentum, weight_decay=weight_decay)
    generator = torch.Generator().manual_seed(4)
    for _ in range(3):
        for batch in torch.randperm(30, generator=generator).split(8):
            optimizer.zero_grad()
            nn.functional.cross_entropy(expected(features[batch]), labels[batch]).backward()
            optimizer.step()
    assert flatten(trained).tobytes() == flatten(expected).tobytes()
    assert flatten(trained).tobytes() != flatten(made()).tobytes()


def test_the_sum_of_gradients_is_zero_where_a_parameter_never_had_one() -> None:
    trained = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    unused, used = trained
    gradients = FisherAccumulator(parameter_layout(trained))
    starts = [parameter.detach().clone() for parameter in trained.parameters()]
    steps = _Sgd(list(trained.parameters()), TrainingSettings(1, 1, 0.1, 0.9))
    for value in (1.0, 3.0):
        for parameter in used.parameters():
            parameter.grad = torch.full_like(parameter, value)
        steps.step()
    gradients.take(trained, steps.gradient_sums(starts), 2)
    scores = gradients.scores()
    count = sum(parameter.numel() for parameter in unused.parameters())
    np.testing.assert_array_equal(scores[:count], 0.0)
    np.testing.assert_allclose(scores[count:], 4.0, rtol=1e-5)  # the mean's square
