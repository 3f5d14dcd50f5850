"""DePE's copy computes what the model does and merges back into it; PrME's rule is that of a slow readable twin."""

from __future__ import annotations

import hashlib
import hmac
import math
import pickle
from copy import deepcopy

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, RangeError, WireFormatError
from shieldfl.learning.networks import VisionTransformer, build_model
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.dictionary_layers import factorise, merged
from shieldfl.methods.dict_pfl.method import DictPflSettings, PruningHistory
from shieldfl.models.torch_bridge import flatten, parameter_layout

SHAPE = (3, 8, 8)


class Attention(nn.Module):
    """torch's own attention and a transformer layer, which read each other's weights for a fused kernel."""

    def __init__(self, **sizes: int) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True, **sizes)
        self.encode = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.sizes = sizes

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        keys = tokens[..., : self.sizes.get("kdim", 8)]
        values = tokens[..., : self.sizes.get("vdim", 8)]
        attended, _ = self.attend(tokens, keys, values, need_weights=False)
        return self.encode(attended)


class Tied(nn.Module):
    """Two layers with one weight, and an embedding that may share it too."""

    def __init__(self, embedding: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(6, 6)
        self.there, self.back = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.back.weight = self.there.weight
        if embedding:
            self.words.weight = self.there.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.back(torch.tanh(self.there(self.words(words))))


def cases() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    torch.manual_seed(3)
    images, tokens = torch.randn(4, *SHAPE), torch.randn(4, 5, 8)
    grouped = nn.Sequential(nn.Conv2d(3, 6, 3, groups=3, bias=False), nn.Flatten(), nn.Linear(6 * 6 * 6, 3))
    return {
        "simple-cnn": (build_model("simple-cnn", SHAPE, 5, 1), images),
        "transformer": (VisionTransformer(SHAPE, 5, width=16, depth=2), images),
        "grouped": (grouped, images),
        "attention": (Attention(), tokens),
        "attention of three widths": (Attention(kdim=6, vdim=4), tokens),
        "tied": (Tied(), torch.arange(6)),
        "one layer": (nn.Linear(8, 3), tokens),
    }


CASES = list(cases())


def train(model: nn.Module, inputs: torch.Tensor, steps: int = 3) -> None:
    model.train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("training", [True, False])
def test_an_untrained_copy_computes_the_same(case: str, training: bool) -> None:
    model, inputs = cases()[case]
    copy = factorise(model, rank=2)
    with torch.set_grad_enabled(training):
        expected, got = deepcopy(model).train(training)(inputs), copy.train(training)(inputs)
    torch.testing.assert_close(expected, got)
    assert type(model) is type(cases()[case][0]), "the model itself was changed"


@pytest.mark.parametrize("case", CASES)
def test_a_trained_copy_merges_into_the_plain_model(case: str) -> None:
    model, inputs = cases()[case]
    copy = factorise(model, rank=2)
    train(copy, inputs)
    plain = merged(copy)
    assert parameter_layout(plain) == parameter_layout(model)
    assert list(plain.state_dict()) == list(model.state_dict())
    assert [type(module) for module in plain.modules()] == [type(module) for module in model.modules()]
    assert all(parameter.requires_grad for parameter in plain.parameters())
    # In evaluation torch's attention takes its fused kernel, which reads the weights by itself.
    for module in (copy, plain):
        module.eval()
    with torch.no_grad():
        torch.testing.assert_close(copy(inputs), plain(inputs))
        assert not torch.allclose(copy(inputs), deepcopy(model).eval()(inputs), atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_weights_move_along_the_dictionary_alone(case: str) -> None:
    """A slow twin: D by NumPy's decomposition, W - W0 in its span, the rest of the parameters trained directly."""
    model, inputs = cases()[case]
    copy = factorise(model, rank=2)
    train(copy, inputs)
    before, after = dict(model.named_parameters()), dict(merged(copy).named_parameters())
    trained = set(dict(copy.named_parameters()))
    for name, start in before.items():
        owner, _, attribute = name.rpartition(".")
        table = f"{owner}.{attribute}_dictionary.table".lstrip(".")
        assert (table in trained) != (name in trained)
        change = (after[name] - start).detach().double().flatten(1 if table in trained else 0).numpy()
        if table in trained:
            left, scales, _ = np.linalg.svd(start.detach().double().flatten(1).numpy(), full_matrices=False)
            signs = [np.sign(column[np.abs(column).argmax()]) for column in left.T[:2]]
            dictionary = left[:, :2] * scales[:2] * signs
            product = dictionary @ copy.get_parameter(table).detach().double().numpy()
            np.testing.assert_allclose(change, product, atol=1e-6)
        assert np.abs(change).max() > 0 or "bias" in name, name


@pytest.mark.parametrize("case", CASES)
def test_functional_calls_and_per_sample_gradients_work(case: str) -> None:
    model, inputs = cases()[case]
    copy = factorise(model, rank=2).eval()
    tables = {name: torch.randn_like(p) / 8 for name, p in copy.named_parameters() if "table" in name}
    moved = factorise(model, rank=2).eval()
    moved.load_state_dict({**moved.state_dict(keep_vars=True), **tables}, strict=False)

    def loss(tables: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
        return functional_call(copy, tables, (sample[None],)).square().sum()

    with sdpa_kernel(SDPBackend.MATH):  # The fused kernels of attention cannot be vectorised over samples.
        each = vmap(grad(loss), in_dims=(None, 0))(tables, inputs)
    moved(inputs).square().sum().backward()
    for name, gradients in each.items():
        expected = moved.get_parameter(name).grad
        torch.testing.assert_close(gradients.sum(dim=0), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_copies_and_pickles_keep_what_was_trained(case: str) -> None:
    model, inputs = cases()[case]
    copy = factorise(model, rank=2)
    train(copy, inputs)
    for other in (deepcopy(copy), pickle.loads(pickle.dumps(copy))):
        np.testing.assert_array_equal(flatten(merged(other)), flatten(merged(copy)))
        train(other, inputs)
        assert not np.array_equal(flatten(merged(other)), flatten(merged(copy)))


def test_the_frozen_part_follows_the_model() -> None:
    copy = factorise(build_model("mlp", (8,), 4, 0)).double()
    assert merged(copy).get_parameter("1.weight").dtype == torch.float64
    assert copy.to("meta")(torch.zeros(2, 8, dtype=torch.float64, device="meta")).shape == (2, 4)


def test_a_shared_weight_has_one_dictionary() -> None:
    copy = factorise(Tied(), rank=3)
    assert [name for name in parameter_layout(copy).names if "dictionary" in name] == [
        "there.weight_dictionary.table"
    ]
    train(copy, torch.arange(6))
    plain = merged(copy)
    assert plain.there.weight is plain.back.weight


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=40)
def test_dictionaries_do_not_depend_on_the_sign_that_a_decomposition_finds(
    rows: int, columns: int, seed: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(1, min(rows, columns)))
    layer = nn.Linear(columns, rows, bias=False)
    layer.weight = nn.Parameter(torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)))
    negated = deepcopy(layer)
    negated.weight = nn.Parameter(-layer.weight.detach())
    directions = [factorise(model, rank).weight_dictionary.directions for model in (layer, negated)]
    torch.testing.assert_close(directions[0], directions[1], rtol=1e-4, atol=1e-4)
    gram = directions[0].T @ directions[0]
    torch.testing.assert_close(gram, torch.diag(gram.diagonal()), rtol=1e-4, atol=1e-4)
    peaks = directions[0].gather(0, directions[0].abs().argmax(dim=0, keepdim=True))
    assert bool((peaks > 0).all())
    assert factorise(layer, rank).weight_dictionary.directions.equal(directions[0])


def test_named_modules_and_all_inside_them_are_trained_fully() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(11)))
    names = parameter_layout(factorise(model, 2, train_fully=("1", "2.1"))).names
    full = {name.removesuffix(".weight") for name in names if name.endswith(".weight")}
    assert full == {"1.0", "1.1", "2.1"}


def test_frozen_layers_are_left_alone() -> None:
    model = build_model("mlp", (8,), 4, 0)
    model.get_submodule("3").requires_grad_(False)
    copy = factorise(model)
    assert type(copy.get_submodule("3")) is nn.Linear
    assert torch.equal(copy.get_parameter("3.weight"), model.get_parameter("3.weight"))
    trained = sum(one.numel() for one in copy.parameters() if one.requires_grad)
    assert trained == 8 * 4 + 256 + 128 * 4 + 4
    model.requires_grad_(False)
    with pytest.raises(ParameterError, match="no layer to factorise"):
        factorise(model)


def filled(value: float) -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4))
    nn.init.constant_(model[0].weight, value)
    return model


MLP = build_model("mlp", (8,), 4, 0)


@pytest.mark.parametrize(
    ("model", "arguments", "error", "message"),
    [
        (MLP, {"rank": 5}, ParameterError, r"rank 5 is larger than layer '5' allows \(min\(4, 128\)\)"),
        (nn.Conv2d(4, 4, 1, groups=4), {"rank": 2}, ParameterError, r"min\(4, 1\)"),
        (
            VisionTransformer(SHAPE, 5, width=16),
            {"train_fully": ("blocks.0.atention",)},
            ParameterError,
            "'blocks.0.atention'; the closest are blocks.0.attention",
        ),
        (MLP, {"train_fully": ("",)}, ParameterError, "no module"),
        (nn.Linear(4, 4), {"train_fully": ("fc",)}, ParameterError, "'fc'; the closest are none"),
        (nn.Sequential(nn.Linear(4, 4)), {"train_fully": "0"}, ParameterError, "train_fully must be a list"),
        (MLP, {"train_fully": ("1", "3", "5")}, ParameterError, "no layer to factorise"),
        (filled(0.0), {}, ParameterError, "layer '0' is all zeros"),
        (filled(float("inf")), {}, RangeError, "layer '0' is not finite"),
        (Tied(embedding=True), {}, ParameterError, "'there' shares its weight with 'words'"),
        (Tied(), {"train_fully": ("there",)}, ParameterError, "'back' shares its weight with 'there'"),
        (factorise(MLP), {}, ParameterError, "already"),
    ],
)
def test_impossible_dictionaries_are_refused(
    model: nn.Module, arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        factorise(model, **arguments)


def test_plain_models_have_nothing_to_merge() -> None:
    with pytest.raises(ParameterError, match="not factorised"):
        merged(MLP)


SECRET = bytes(range(32))


class Twin:
    """The same rule in plain Python, one position after the other."""

    def __init__(self, size: int, secret: bytes, rule: DictPflSettings) -> None:
        self.secret, self.rule = secret, rule
        self.small_rounds = [0] * size
        self.is_pruned = [False] * size
        self.probability = [rule.first_probability] * size

    def active(self, round_number: int) -> list[int]:
        label = f"shieldfl reactivation {round_number}".encode()
        key = hmac.new(self.secret, label, hashlib.sha256).digest()
        stream = hashlib.shake_256(key).digest(4 * len(self.is_pruned))
        chosen = []
        for position, pruned in enumerate(self.is_pruned):
            draw = int.from_bytes(stream[4 * position : 4 * position + 4], "little") / 2**32
            if not pruned or draw < self.probability[position]:
                chosen.append(position)
        return chosen

    def observe(self, round_number: int, values: list[float]) -> None:
        sent = dict(zip(self.active(round_number), values, strict=True))
        if self.rule.ranked == "all":
            updates = {position: sent.get(position, 0.0) for position in range(len(self.is_pruned))}
        else:
            updates = sent
        # What was not sent comes before all that was, whatever its value.
        order = sorted(updates, key=lambda position: (position in sent, abs(updates[position]), position))
        small = set(order[: math.floor(self.rule.small_percent * len(order) / 100)])
        for position in sent:
            if self.is_pruned[position] and position in small:
                self.probability[position] *= self.rule.decay
            elif self.is_pruned[position]:
                self.probability[position] = min(1.0, self.probability[position] / self.rule.decay)
            self.small_rounds[position] = self.small_rounds[position] + 1 if position in small else 0
            self.is_pruned[position] = self.small_rounds[position] >= self.rule.patience_rounds


RULES = st.builds(
    DictPflSettings,
    small_percent=st.sampled_from([0.0, 12.5, 50.0, 70.0, 99.0]),
    patience_rounds=st.integers(1, 3),
    decay=st.sampled_from([0.2, 0.5, 1.0]),
    first_probability=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    ranked=st.sampled_from(["all", "sent"]),
)


def draw_update(data: st.DataObject, count: int) -> np.ndarray:
    """Few distinct magnitudes, so that there are ties, on both sides of 0."""
    values = st.sampled_from([-2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0])
    return np.array(data.draw(st.lists(values, min_size=count, max_size=count)), dtype=np.float32)


@given(RULES, st.integers(1, 12), st.data())
@settings(max_examples=120)
def test_the_rule_is_the_twins(rule: DictPflSettings, size: int, data: st.DataObject) -> None:
    history, twin = PruningHistory(size, SECRET, rule), Twin(size, SECRET, rule)
    for round_number in range(1, 9):
        active = history.active_mask(round_number)
        assert active.to_indices().tolist() == twin.active(round_number)
        assert active.count >= 1
        update = draw_update(data, active.count)
        history.observe(round_number, update)
        twin.observe(round_number, update.tolist())


@given(RULES, st.integers(1, 40), st.integers(0, 2**32 - 1), st.lists(st.booleans(), min_size=8, max_size=8))
@settings(max_examples=60)
def test_everyone_derives_the_same_from_the_same_history(
    rule: DictPflSettings, size: int, seed: int, comes_back: list[bool]
) -> None:
    """Also one who starts again from the state of another, and in rounds after some that gave no update."""
    random = np.random.default_rng(seed)
    steady = PruningHistory(size, SECRET, rule)
    restarting = PruningHistory(size, SECRET, rule)
    round_number = 0
    for restarts in comes_back:
        round_number += int(random.integers(1, 4))
        if restarts:
            restarting = PruningHistory.from_bytes(steady.to_bytes(), size, SECRET, rule)
        active = steady.active_mask(round_number)
        assert restarting.active_mask(round_number) == active
        update = random.standard_normal(active.count)
        steady.observe(round_number, update)
        restarting.observe(round_number, update)
        assert restarting.last_round == steady.last_round == round_number
        assert restarting.to_bytes() == steady.to_bytes()


def pruned_but_one(size: int, secret: bytes = SECRET, **rule: float) -> PruningHistory:
    """All positions but the last are pruned, after one round."""
    settings = DictPflSettings(small_percent=100 * (1 - 0.5 / size), patience_rounds=1, **rule)
    history = PruningHistory(size, secret, settings)
    update = np.zeros(size, dtype=np.float32)
    update[-1] = 1.0
    history.observe(1, update)
    return history


def test_positions_are_drawn_once_a_round_and_anew_after_another_was_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history, same = pruned_but_one(400, first_probability=0.5), pruned_but_one(400, first_probability=0.5)
    update, drawn = np.arange(same.active_mask(8).count, dtype=np.float32), []
    same.observe(8, update)
    expected = same.active_mask(9)
    monkeypatch.setattr(
        hashlib, "shake_256", lambda key, draw=hashlib.shake_256: drawn.append(key) or draw(key)
    )
    early = history.active_mask(9)
    assert history.active_mask(9) == early
    assert len(drawn) == 1
    history.observe(8, update)
    assert history.active_mask(9) == expected != early


def test_the_last_64_observed_rounds_are_told_from_those_given_up() -> None:
    history = PruningHistory(1, SECRET)
    opened = [number for number in range(1, 80) if number not in (5, 70)]
    for round_number in opened:
        history.observe(round_number, np.ones(1))
    for one in (history, PruningHistory.from_bytes(history.to_bytes(), 1, SECRET)):
        assert [number for number in range(opened[-64], 90) if one.has_observed(number)] == opened[-64:]
        assert one.has_observed(5), "too long ago to know"
    assert not PruningHistory(1, SECRET).has_observed(1)


def test_a_tag_is_of_positions_round_history_and_secret() -> None:
    history, same = pruned_but_one(40, first_probability=0.5), pruned_but_one(40, first_probability=0.5)
    active = history.active_mask(2)
    tag = history.tag(2, active)
    assert tag == same.tag(2, active)
    assert len(tag) == 32
    swapped = active.to_bool()[::-1].copy()
    others = [
        history.tag(3, active),
        history.tag(2, Mask.from_bool(swapped)),
        PruningHistory(40, SECRET).tag(2, active),
        pruned_but_one(40, secret=SECRET[::-1]).tag(2, active),
    ]
    assert len({tag, *others}) == 5
    assert Mask.from_bool(swapped).count == active.count


def test_a_refused_update_changes_nothing() -> None:
    history = PruningHistory(4, SECRET)
    history.observe(3, np.ones(4, dtype=np.float32))
    before = history.to_bytes()
    good = np.ones(4, dtype=np.float32)
    for round_number, update, error, message in (
        (3, good, ParameterError, "round 3 is over"),
        (0, good, ParameterError, "round 0 is over"),
        (4, np.array([1, np.nan, 1, 1]), RangeError, "NaN or infinity"),
        (4, np.array([1, np.inf, 1, 1]), RangeError, "NaN or infinity"),
    ):
        with pytest.raises(error, match=message):
            history.observe(round_number, update)
    with pytest.raises(ParameterError, match="round 3 is over"):
        history.active_mask(3)
    assert history.to_bytes() == before


def altered(**parts: bytes) -> bytes:
    written = dict(Message.from_bytes(PruningHistory(4, SECRET).to_bytes()))
    return Message(written | {name.replace("_", " "): part for name, part in parts.items()}).to_bytes()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (b"", "truncated"),
        (PruningHistory(4, SECRET).to_bytes()[:-1], "truncated"),
        (PruningHistory(5, SECRET).to_bytes(), "expected"),
        (Message({}).to_bytes(), "no part"),
        (altered(probabilities=np.array([0.1, 0.1, 0.1, np.nan]).tobytes()), "no step"),
        (altered(probabilities=np.array([0.1, 0.1, 0.1, 1.5]).tobytes()), "no step"),
        (altered(streaks=np.array([0, 0, 0, 4], dtype=np.uint16).tobytes()), "no step"),
        (altered(streaks=np.full(4, 3, dtype=np.uint16).tobytes()), "no step"),
        (altered(rounds=b"\x01"), "expected"),
        (altered(rounds=np.arange(64, 0, -1, dtype=np.uint64).tobytes()), "no step"),
        (altered(rounds=np.array([0] * 61 + [1, 3, 3], dtype=np.uint64).tobytes()), "no step"),
        (altered(rounds=np.array([0] * 61 + [1, 3, 0], dtype=np.uint64).tobytes()), "no step"),
    ],
)
def test_damaged_states_are_refused(state: bytes, message: str) -> None:
    with pytest.raises(WireFormatError, match=message):
        PruningHistory.from_bytes(state, 4, SECRET)


def test_a_state_is_bound_to_what_prunes_alone() -> None:
    state = PruningHistory(4, SECRET, DictPflSettings(rank=2, value_bits=20)).to_bytes()
    assert PruningHistory.from_bytes(state, 4, SECRET, DictPflSettings()).to_bytes() == state
    stated = msgspec.json.decode(Message.from_bytes(state)["settings"])
    assert stated == {
        "decay": 0.2,
        "first_probability": 0.2,
        "patience_rounds": 3,
        "ranked": "all",
        "small_percent": 70.0,
    }
    assert SECRET not in state
