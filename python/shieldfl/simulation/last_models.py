"""The models that a method's run ended with: of all clients, of each one, and of each cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.torch_bridge import load_flat, load_flat_buffers
from shieldfl.training.local_update import StartingPoint

__all__ = ["LastModels"]


@dataclass(frozen=True)
class LastModels:
    """What a run of one method leaves, as states of the module that it trained."""

    method: str
    module: nn.Module
    """That it trained: overwritten by each reading."""
    of_all: StartingPoint | None
    """The global model; None where there is not one for all clients."""
    of_clients: Mapping[int, StartingPoint]
    """Each client's merged model; a client that no cluster has taken in has none."""
    clusters: Mapping[int, int]
    """By client; empty where there are no clusters."""
    clients: int
    """How many the federation has, with and without a model."""

    def state(self, client: int | None = None, cluster: int | None = None) -> dict[str, torch.Tensor]:
        """Return copies of the tensors of one model, on the processor.

        Raises ParameterError where these arguments name no model, or name several.
        """
        if client is not None and cluster is not None:
            raise ParameterError("give client or cluster, not both")
        if client is not None:
            point = self._of_client(as_unsigned(client, "client"))
        elif cluster is not None:
            point = self._of_cluster(as_unsigned(cluster, "cluster"))
        else:
            point = self._of_all()
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

    def _of_cluster(self, cluster: int) -> StartingPoint:
        numbers = sorted(set(self.clusters.values()))
        if not numbers:
            raise ParameterError(f"{self.method} has no clusters: leave out cluster")
        if cluster not in numbers:
            raise ParameterError(f"there is no cluster {cluster}: choose from {', '.join(map(str, numbers))}")
        return self.of_clients[min(one for one, number in self.clusters.items() if number == cluster)]

    def _of_all(self) -> StartingPoint:
        if self.of_all is not None:
            return self.of_all
        numbers = sorted(set(self.clusters.values()))
        if len(numbers) == 1:
            return self._of_cluster(numbers[0])
        if numbers:
            named = ", ".join(map(str, numbers))
            raise ParameterError(
                f"{self.method} ended with {len(numbers)} clusters, each with its own model: give cluster, one of "
                f"{named}, or client"
            )
        raise ParameterError(
            f"{self.method} leaves buffers with each client, so there is no model for all: give client"
        )
