"""What models of one run are measured by on the test set, each model once; and those that a run ends with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from shieldfl.array_view import address_of, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.learning.local_trainer import Objective
from shieldfl.learning.local_update import StartingPoint
from shieldfl.learning.sgd import correct_by_class
from shieldfl.models.torch_bridge import load_flat, load_flat_buffers

_Figures = dict[str, float]


_Measured = tuple[_Figures, npt.NDArray[np.float64] | None]
"""And, of the test samples of each class, the share that a model classifies correctly; NaN for a class without any."""


class Evaluation:
    """Measures models on a test set; those of a round that the round before had too are not measured again.

    The model is overwritten. The test set is on its device. ``label_shares`` has of each client's data the
    share of each class, (clients, classes), for :meth:`matched_accuracy`; None where targets are no classes,
    or something else than the accuracy is measured.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        features: torch.Tensor,
        targets: torch.Tensor,
        label_shares: npt.NDArray[np.float64] | None = None,
    ) -> None:
        self._model = model
        self._objective = objective
        self._test = features, targets
        self._label_shares = label_shares
        if label_shares is not None:
            self._of_class = np.bincount(targets.cpu().numpy(), minlength=label_shares.shape[1])
            self._own_classes = [(held := np.flatnonzero(own), own[held]) for own in label_shares]
            """Of each client's data the classes, and their shares."""
        self._digests: dict[tuple[int, int], tuple[bytes, StartingPoint]] = {}
        """Of the models that were measured last, by address: one that all clients have is read once. Each stands beside
        its digest, so that no other one comes to lie there."""
        self._known: dict[bytes, _Measured] = {}
        """By the digest of a model: those of this round and the one before."""
        self._newest: frozenset[bytes] = frozenset()
        """Digests of all models of the newest round."""
        self.changed_nothing = False
        """Whether these are those of the round before."""

    def means(self, *groups: Sequence[StartingPoint]) -> list[_Figures]:
        """Return of each group of one round's models every figure as a mean over them; none for a group without any."""
        self._digests = {}
        found: dict[bytes, _Measured] = {}
        means = []
        for points in groups:
            figures = [self._measured(self._digest(point), point, found)[0] for point in points]
            names = self._objective.names if figures else ()
            means.append({name: float(np.mean([one[name] for one in figures])) for name in names})
        self._known = found
        self.changed_nothing = found.keys() == self._newest
        self._newest = frozenset(found)
        return means

    def begin_from(self, points: Iterable[StartingPoint]) -> None:
        self._newest = frozenset(map(self._digest, points))

    def _digest(self, point: StartingPoint) -> bytes:
        """Return what two models have in common only where they are the same: their sizes are the run's."""
        place = address_of(point.parameters), address_of(point.buffers)
        if place not in self._digests:
            digest = hashlib.sha256(np.ascontiguousarray(point.parameters).data)
            digest.update(np.ascontiguousarray(point.buffers).data)
            self._digests[place] = digest.digest(), point
        return self._digests[place][0]

    def matched_accuracy(self, clients: Sequence[int], points: Sequence[StartingPoint]) -> float:
        """Return the mean over clients of their models' accuracy on test data of each one's own label distribution.

        As in SelectiveShield's eq. 10 and SenseCrypt's figures 2b to 4c. Nothing is drawn: the accuracy on each class
        counts by its share of the client's data, which is what test sets of that distribution give on average. NaN
        without label shares, and where the test set lacks a class that a client has. ``points`` are the clients'
        models, those of the last call of :meth:`means`.
        """
        if self._label_shares is None or not points:
            return float("nan")
        accuracies = []
        for client, point in zip(clients, points, strict=True):
            _, by_class = self._known[self._digest(point)]
            assert by_class is not None, "there are label shares"
            classes, shares = self._own_classes[client]
            accuracies.append(float(shares @ by_class[classes]))
        return float(np.mean(accuracies))

    def _measured(self, digest: bytes, point: StartingPoint, found: dict[bytes, _Measured]) -> _Measured:
        if digest not in found:
            found[digest] = self._known[digest] if digest in self._known else self._measure(point)
        return found[digest]

    def _measure(self, point: StartingPoint) -> _Measured:
        load_flat(self._model, point.parameters)
        load_flat_buffers(self._model, point.buffers)
        if self._label_shares is None:
            return self._objective.measured(self._model, *self._test), None
        correct = correct_by_class(self._model, *self._test, self._of_class.size)
        with np.errstate(invalid="ignore"):
            by_class = correct / self._of_class
        return {"accuracy": int(correct.sum()) / int(self._of_class.sum())}, by_class


@dataclass(frozen=True)
class LastModels:
    method: str
    module: nn.Module
    of_all: StartingPoint | None
    of_clients: Mapping[int, StartingPoint]
    """Each client's merged model; a client that no cluster has taken in has none."""
    clusters: Mapping[int, int]
    clients: int

    def state(self, client: int | None = None, cluster: int | None = None) -> dict[str, torch.Tensor]:
        """Return copies, on the processor. Raises ParameterError for no model of that name, or several."""
        if client is not None and cluster is not None:
            raise ParameterError("give client or cluster, not both")
        if client is not None:
            point = self._of_client(as_unsigned(client, "client"))
        elif self.of_all is not None and cluster is None:
            point = self.of_all
        else:
            point = self._of_cluster(None if cluster is None else as_unsigned(cluster, "cluster"))
        load_flat(self.module, point.parameters)
        load_flat_buffers(self.module, point.buffers)
        return {name: one.detach().cpu().clone() for name, one in self.module.state_dict().items()}

    def _of_client(self, client: int) -> StartingPoint:
        if client >= self.clients:
            raise ParameterError(f"there is no client {client}: clients are 0 to {self.clients - 1}")
        if client not in self.of_clients:
            raise ParameterError(
                f"client {client} has no model of {self.method}: it took part in no round, so no cluster has it"
            )
        return self.of_clients[client]

    def _of_cluster(self, cluster: int | None) -> StartingPoint:
        numbers = sorted(set(self.clusters.values()))
        named = ", ".join(map(str, numbers))
        if not numbers and cluster is not None:
            raise ParameterError(f"{self.method} has no clusters: leave out cluster")
        if not numbers:
            raise ParameterError(
                f"{self.method} leaves buffers with each client, so there is no model for all: give client"
            )
        if cluster is None and len(numbers) > 1:
            raise ParameterError(
                f"{self.method} ended with {len(numbers)} clusters, each with its own model: give cluster, one of "
                f"{named}, or client"
            )
        cluster = numbers[0] if cluster is None else cluster
        if cluster not in numbers:
            raise ParameterError(f"there is no cluster {cluster}: choose from {named}")
        return self.of_clients[min(one for one, number in self.clusters.items() if number == cluster)]
