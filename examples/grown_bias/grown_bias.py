"""``grown-bias``: counts a client's labels by how far training has moved the biases of the last layer."""

import numpy as np
from torch import nn

from shieldfl.lab.audit.attack import Recovered, UpdateAttack
from shieldfl.lab.audit.views.observed_update import ObservedUpdate


def last_bias(observed: ObservedUpdate) -> str | None:
    """Return the name of the bias of the model's last Linear, where it has one for each class."""
    layers = [(name, one) for name, one in observed.model.named_modules() if isinstance(one, nn.Linear)]
    name, layer = layers[-1] if layers else ("", None)
    if layer is None or layer.bias is None or layer.out_features != observed.classes:
        return None
    return f"{name}.bias".lstrip(".")


class GrownBias(UpdateAttack):
    """A class's bias has the gradient p - k/K: what the model says of the class, at first about 1/C, less its share."""

    name = "grown-bias"
    recovers = "labels"
    source = "an example of an attack in a package of its own"

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """Say why it cannot be tried, or None."""
        return (
            None if last_bias(observed) else "the model does not end in a Linear with a bias for each class"
        )

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        """Return the counts of labels; nothing here is random, whatever the seed."""
        name = last_bias(observed)
        assert name is not None
        gradient = observed.tensors(observed.gradient)[name].numpy()
        counts = np.maximum(observed.samples * (1.0 / observed.classes - gradient), 0.0)
        whole = np.floor(counts * observed.samples / max(counts.sum(), 1e-9)).astype(np.int64)
        largest_rests = np.argsort(whole - counts)[: observed.samples - int(whole.sum())]
        whole[largest_rests] += 1
        return Recovered(label_counts=whole)
