"""Fine-tuning a small transformer by low-rank adapters, of which alone anything is sent: `python lora.py`.

The transformer is built here, so that nothing is downloaded. With a pretrained one, and adapters of PEFT, what is laid
out is ``peft.get_peft_model_state_dict(model)``; the rest stays as it is.
"""

from __future__ import annotations

import torch
from torch import nn

import shieldfl as sf
from shieldfl.models import ModelLayout

CLIENTS, ROUNDS, RANK = 3, 6, 4
VOCABULARY, LENGTH, WIDTH = 30, 10, 32


class LowRank(nn.Module):
    """A frozen linear layer, and beside it two thin matrices that are trained."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)  # so that it begins as the frozen layer

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Add what the adapter says to what the layer says."""
        changed: torch.Tensor = self.base(values) + self.up(self.down(values))
        return changed


class Transformer(nn.Module):
    """One block of attention; pretrained weights would be loaded before the adapters come in."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.feed = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits (N, 2) of tokens (N, LENGTH)."""
        words = self.embedding(tokens)
        mixed = nn.functional.scaled_dot_product_attention(
            self.query(words), self.key(words), self.value(words)
        )
        mixed = words + mixed
        logits: torch.Tensor = self.head((mixed + self.feed(mixed)).mean(dim=1))
        return logits


def make_model() -> Transformer:
    """Return the model with adapters; all but these and the head is frozen."""
    torch.manual_seed(0)
    model = Transformer().requires_grad_(False)
    for parent, name in ((model, "query"), (model, "value"), (model.feed, "0"), (model.feed, "2")):
        layer = parent.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        setattr(parent, name, LowRank(layer))
    model.head.requires_grad_(True)
    return model


def samples(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens, and whether more of them are of the second half of the vocabulary."""
    tokens = torch.randint(0, VOCABULARY, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    return tokens, ((tokens >= VOCABULARY // 2).sum(dim=1) > LENGTH // 2).long()


def train(model: nn.Module, tokens: torch.Tensor, classes: torch.Tensor) -> None:
    """Make a client's steps of a round."""
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=0.01)
    for _ in range(3):
        for batch in torch.split(torch.arange(len(tokens)), 32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tokens[batch]), classes[batch]).backward()
            optimizer.step()


def main() -> float:
    """Train, print the accuracy of each round, and return the last one."""
    model = make_model()
    layout = ModelLayout.of(model, trainable_only=True)
    print(f"{layout.size:,} of {sum(one.numel() for one in model.parameters()):,} parameters are sent")
    tokens, classes = samples(200, seed=9)

    authority = sf.KeyAuthority(sf.kahe.Parameters(max_clients=CLIENTS), min_clients=CLIENTS)
    keys = [authority.enrol(f"client-{number}") for number in range(CLIENTS)]
    accuracy = 0.0
    for number in range(1, ROUNDS + 1):
        aggregator = sf.kahe.Aggregator(
            authority.public_key, round=number, positions=sf.Mask.full(layout.size), weighted=False
        )
        for index, key in enumerate(keys):  # on each client
            own = make_model()
            own.load_state_dict(model.state_dict())
            train(own, *samples(200, seed=index))
            aggregator.add(layout.encrypt(sf.kahe.Encryptor(key), own, since=model, round=number).to_bytes())
        total = aggregator.total()
        update = sf.kahe.open(total, authority.sum_key(total.request()), keys[0]) / CLIENTS
        model.load_state_dict(layout.moved(model, update))
        with torch.no_grad():
            accuracy = float((model(tokens).argmax(dim=1) == classes).float().mean())
        print(f"round {number}: accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
