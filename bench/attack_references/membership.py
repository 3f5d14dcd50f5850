"""Was this sample trained on? Asked of one client's update, and of confidences without models that saw the sample."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from shieldfl.lab.audit.attacks.membership import fitted
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.learning.scores import batches_of, evaluation_mode
from shieldfl.models.sample_gradients import gradients_of_samples

__all__ = ["offline", "update_alignment"]

Scores = NDArray[np.float64]


def offline(scores: Scores, included: NDArray[np.bool_], target: Scores) -> Scores:
    """Return (m,) how far above the scores of models without the candidate a target's scores (m,) are.

    It is the logarithm of the chance that such a model's is higher, negated; models with it are not needed.
    """
    above: Scores = -norm.logsf(target, *fitted(scores, ~included))
    return above


def update_alignment(
    observed: ObservedUpdate, features: torch.Tensor, labels: torch.Tensor, batch_size: int = 32
) -> Scores:
    """Return the cosine (m,) between each candidate's gradient and a client's update, at the positions that are known.

    A sample's own gradient is a part of the update that it was trained on, and of many parameters gradients of
    different samples are nearly orthogonal. Source: Li et al. 2023, "Effective passive membership inference attacks in
    federated learning against overparameterized models", section 4.

    The gradients are of the model that the client began from, in evaluation mode. 0 where either has no length.

    Parameters
    ----------
    observed : ObservedUpdate
        Positions that are not known are left out on both sides.
    features, labels : tensors, shape (m, ...) and (m,)
        The candidates.
    batch_size : int
        Candidates differentiated at once; memory grows by P floats for each.
    """
    known = observed.tensors(observed.known)
    update = observed.tensors(observed.gradient)
    cosines = []
    gradients_of = gradients_of_samples(observed.model)
    for batch in batches_of(features, labels, batch_size):
        with evaluation_mode(observed.model):
            gradients, _, _ = gradients_of(*batch)
        own = torch.cat([gradient[:, known[name]] for name, gradient in gradients.items()], dim=1).double()
        whole = torch.cat([update[name][known[name]] for name in gradients]).double()
        lengths = own.norm(dim=1) * whole.norm()
        cosines.append(torch.where(lengths > 0, own @ whole / lengths, 0.0))
    scores: Scores = torch.cat(cosines).numpy()
    return scores
