"""Which client is in which cluster: decided once for those that are there, by the nearest centre for later ones."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError, RangeError
from shieldfl.methods.sense_crypt.client_clustering import cluster_clients, join_cluster
from shieldfl.stateful import Stateful, refuse_unless

__all__ = ["ClusterRegistry"]


class ClusterRegistry(Stateful):
    """What the aggregator knows of the clients: what they reported, and their clusters (SenseCrypt, section 3.1).

    Parameters
    ----------
    clients : how many there are.
    by_sensitivity : whether there are clusters; False puts all clients into one.
    least_members : smaller clusters are merged, since the key authority opens no total of fewer clients.
    least_silhouette : below it, clusters count as none.
    noise_deviation : standard deviation of the noise on each sensitivity.
    """

    changes: ClassVar = {
        "_clusters": NDArray[np.int64],
        "_capabilities": np.ndarray[tuple[int, int], np.dtype[np.float64]],
        "_waiting": dict[int, NDArray[np.float32] | None],
        "_centres": np.ndarray[tuple[int, int], np.dtype[np.float32]] | None,
    }

    def __init__(
        self,
        clients: int,
        by_sensitivity: bool,
        least_members: int,
        least_silhouette: float,
        noise_deviation: float,
    ) -> None:
        self.by_sensitivity = by_sensitivity
        self._least_members = least_members
        self._least_silhouette = least_silhouette
        self._noise_deviation = noise_deviation
        self._clients = clients
        self._clusters: NDArray[np.int64] = np.full(clients, -1)
        self._capabilities: NDArray[np.float64] = np.zeros((clients, 2))
        # What clients that are not assigned yet have reported: None where they are not clustered by it.
        self._waiting: dict[int, NDArray[np.float32] | None] = {}
        self._centres: NDArray[np.float32] | None = None

    def check_changed(self) -> None:
        """Raise WireFormatError for clusters or reports of clients that there are not."""
        super().check_changed()
        clients = self._clients
        refuse_unless(self._centres is None or len(self._centres) <= clients)
        refuse_unless(self._clusters.size == clients and self._capabilities.shape == (clients, 2))
        refuse_unless(bool(((self._clusters >= -1) & (self._clusters < clients)).all()))
        refuse_unless(bool(np.isfinite(self._capabilities).all() and (self._capabilities >= 0.0).all()))
        refuse_unless(self._waiting.keys() <= set(range(clients)))
        vectors = [one for one in self._waiting.values() if one is not None]
        centres = [] if self._centres is None else list(self._centres)
        refuse_unless(len({one.size for one in (*vectors, *centres)}) <= 1)
        refuse_unless(all(bool(np.isfinite(one).all()) for one in (*vectors, *centres)))
        refuse_unless(all((one is not None) == self.by_sensitivity for one in self._waiting.values()))

    def is_of(self, size: int) -> bool:
        """Say whether the sensitivities and centres that it has are of ``size`` parameters."""
        vectors = [one for one in self._waiting.values() if one is not None]
        return all(one.shape[-1] == size for one in (*vectors, self._centres) if one is not None)

    def knows(self, client: int) -> bool:
        """Say whether the client is in a cluster."""
        return bool(self._clusters[client] >= 0)

    def cluster_of(self, client: int) -> int:
        """Return the client's cluster, from 0; -1 for a client that is in none."""
        return int(self._clusters[client])

    def assignments(self) -> NDArray[np.int64]:
        """Return the cluster of every client, int64 (K,); -1 for one that has not been seen."""
        return self._clusters.copy()

    def capabilities(self, clients: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return bandwidths and computing speeds that these clients reported."""
        return self._capabilities[clients, 0], self._capabilities[clients, 1]

    def introduce(
        self, client: int, sensitivity: NDArray[np.float32] | None, bandwidth: float, compute_speed: float
    ) -> None:
        """Take what a client reports of itself.

        Raises RangeError for NaN or infinity in the vector, and for a bandwidth or speed that is not positive;
        ParameterError for a vector where clients are not clustered by it, and for none where they are.
        """
        if (sensitivity is not None) != self.by_sensitivity:
            raise ParameterError("pass a sensitivity if and only if clients are clustered by it")
        reported = np.array([bandwidth, compute_speed])
        if not (np.isfinite(reported).all() and (reported > 0.0).all()):
            raise RangeError(f"client {client} reports a bandwidth or speed that is not positive and finite")
        if sensitivity is not None and not np.isfinite(sensitivity).all():
            raise RangeError(f"client {client} sent a sensitivity that is NaN or infinite")
        self._capabilities[client] = reported
        if not self.knows(client):
            self._waiting[client] = sensitivity

    def assign(self) -> tuple[str, ...]:
        """Put every client that was introduced into a cluster.

        Return what a reader of the results must know: what was found, and what fell back.
        """
        waiting, self._waiting = sorted(self._waiting.items()), {}
        clients = [client for client, _ in waiting]
        if not self.by_sensitivity:
            self._clusters[clients] = 0
            return ()
        if not clients:
            return ()
        vectors = np.stack([vector for _, vector in waiting if vector is not None])
        if self._centres is not None:
            self._clusters[clients] = [join_cluster(vector, self._centres) for vector in vectors]
            return ()
        # The seed only breaks ties between clients that are exactly alike.
        found = cluster_clients(
            vectors, self._least_members, self._least_silhouette, self._noise_deviation, seed=0
        )
        self._clusters[clients] = found.labels
        self._centres = vectors[list(found.centres)]
        sizes = ", ".join(str(size) for size in np.bincount(found.labels))
        outcome = (
            f"{len(clients)} clients are in {len(found.centres)} cluster(s) of {sizes}; "
            f"silhouette {found.silhouette:.3f}"
        )
        return *found.notes, outcome
