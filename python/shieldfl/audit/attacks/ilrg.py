"""Label recovery from the gradient of a classifier's last layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from torch import nn

from shieldfl.audit.attack import Recovered, UpdateAttack
from shieldfl.audit.attacker.computed_layer import computed_last_layer
from shieldfl.audit.attacker.last_layer import last_layer, logits_layer
from shieldfl.audit.views.observed_update import ObservedUpdate

__all__ = ["Ilrg", "whole_counts"]

FloatArray = NDArray[np.float64]

_CLEAR = 2.0
"""Deviations of the noise that a bias gradient has to be above for a weight gradient to be divided by it."""


@dataclass(frozen=True)
class Ilrg(UpdateAttack):
    """Counts the labels of a batch from its mean gradient (iLRG).

    Of the last layer, row i of the weight's gradient over the bias's is a mean of the features below, mostly of class
    i's samples: h_i. Its softmax p_i = softmax(W h_i + b) stands for what the model says of class i, and the counts k
    solve sum_j k_j = K and sum_j k_j p_j[i] - k_i = K g_b,i.

    After several steps of SGD, W and b are those from before them, and the gradient is a mean over all steps. Where W
    is computed of other parameters, as of factors, their gradients tell that of W in part: what fits them best is
    taken.
    """

    name: ClassVar[str] = "ilrg"
    recovers: ClassVar[Literal["labels", "images"]] = "labels"
    source: ClassVar[str] = (
        "Ma et al., Instance-wise Batch Label Restoration via Gradients in Federated Learning, ICLR 2023, section 3"
    )
    longest: float | None = 2.0
    """An h_i of more than so many median lengths gives way to the mean of the others. An addition of ours: where what
    class i's samples and all others' put into g_b,i just cancels out, the quotient is no class's features, and one such
    class spoils all counts. None for the paper's equations as they are.
    """

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """Say why it cannot be tried: it is about a last Linear with a bias."""
        layer = last_layer(observed) or computed_last_layer(observed)
        if layer is None or layer.bias is None:
            return (
                f"the model's outputs are not those of a Linear with a bias and {observed.classes} outputs, "
                "one for each class"
            )
        return None

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        """Return the counts of labels; nothing here is random, whatever the seed."""
        name = logits_layer(observed)
        assert name is not None
        module = observed.model.get_submodule(name)
        assert isinstance(module, nn.Linear)
        weight, bias = (one.detach().double().numpy() for one in (module.weight, module.bias))
        bias_name, weight_gradient = self._gradient(observed)
        bias_gradient = observed.tensors(observed.gradient)[bias_name].double().numpy()
        noise = observed.tensors(observed.gradient_deviation)[bias_name].double().numpy()
        telling = np.abs(bias_gradient) > _CLEAR * noise
        features = self._class_features(weight_gradient, bias_gradient, telling)
        said = softmax(features @ weight.T + bias, axis=1)
        samples, classes = observed.samples, observed.classes
        coefficients = np.vstack([np.ones((1, classes)), said.T - np.eye(classes)])
        values = np.concatenate([[samples], samples * bias_gradient])
        return Recovered(label_counts=whole_counts(np.linalg.pinv(coefficients) @ values, samples))

    def _gradient(self, observed: ObservedUpdate) -> tuple[str, FloatArray]:
        """Return the name of the bias, and the gradient of the weight, or what is told of it where it is computed."""
        layer = last_layer(observed)
        if layer is not None and layer.bias is not None:
            return layer.bias, layer.gradient(observed, layer.weight)
        computed = computed_last_layer(observed)
        assert computed is not None
        return computed.bias, computed.weight_gradient(observed)

    def _class_features(
        self, weight_gradient: FloatArray, bias_gradient: FloatArray, telling: NDArray[np.bool_]
    ) -> FloatArray:
        """Return h_i for each class, (C, d); the mean of the others' where the quotient says nothing.

        ``telling`` (C,) says where it does.
        """
        with np.errstate(over="ignore"):
            features: FloatArray = np.nan_to_num(
                np.divide(
                    weight_gradient,
                    bias_gradient[:, None],
                    out=np.zeros_like(weight_gradient),
                    where=telling[:, None],
                )
            )
        if not telling.any():
            return features
        if self.longest is not None:
            lengths = np.linalg.norm(features, axis=1)
            telling &= lengths <= self.longest * np.median(lengths[telling])
        features[~telling] = features[telling].mean(axis=0)
        return features


def whole_counts(counts: FloatArray, total: int) -> NDArray[np.int64]:
    """Round counts (C,) to whole numbers from 0 on whose sum is the total, by largest remainders.

    Negative ones become 0, and the others are scaled. All the same where none is positive.
    """
    shares = np.clip(counts, 0.0, None)
    if shares.sum() == 0.0:
        shares = np.ones_like(shares)
    exact = shares * (total / shares.sum())
    whole: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    # Of equal remainders the first class is rounded up, on every machine.
    rounded_up = np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]
    whole[rounded_up] += 1
    return whole
