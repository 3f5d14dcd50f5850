"""breaching 0.1.2 (Geiping et al.) on the gradients that the audit's attacks get, for bench/audit_reference.py.

It is on PyPI and is no dependency: ``pip install breaching==0.1.2`` brings torchvision, hydra and others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from shieldfl.lab.audit.views.observed_update import ObservedUpdate


class Breaching:
    """Attacks of breaching with its own settings, but for the number of iterations and what is stated here.

    Parameters
    ----------
    mean, deviation : by which each channel was normalised; it keeps images within what [0, 1] becomes.
    """

    def __init__(self, mean: list[float], deviation: list[float]) -> None:
        import breaching

        self._attacks = breaching.attacks
        self._settings = Path(breaching.__file__).parent / "config" / "attack"
        self._normalisation = {"mean": mean, "std": deviation}

    def inverting(
        self, observed: ObservedUpdate, labels: torch.Tensor, iterations: int, smoothness: float, seed: int
    ) -> torch.Tensor:
        """Its inverting gradients with known labels; return images."""
        settings = self._read("invertinggradients", iterations)
        settings.regularization.total_variation.scale = smoothness
        return self._reconstructed(settings, observed, labels, seed)["data"]

    def dlg(self, observed: ObservedUpdate, iterations: int, seed: int) -> torch.Tensor:
        """Its deep leakage, labels unknown, from one start; return images."""
        return self._reconstructed(self._read("deepleakage", iterations), observed, None, seed)["data"]

    def labels(self, observed: ObservedUpdate, strategy: str, seed: int) -> torch.Tensor:
        """Labels (m,) by one of its rules; it has no iLRG."""
        settings = self._read("invertinggradients", 1)
        settings.label_strategy = strategy
        settings.regularization = None
        return self._reconstructed(settings, observed, None, seed, only_labels=True)["labels"]

    def _read(self, name: str, iterations: int) -> Any:
        from omegaconf import OmegaConf

        default, own = (
            OmegaConf.load(self._settings / f"{one}.yaml") for one in ("_default_optimization_attack", name)
        )
        own.pop("defaults", None)
        return OmegaConf.merge(default, own, {"optim": {"max_iterations": iterations}})

    def _reconstructed(
        self,
        settings: Any,
        observed: ObservedUpdate,
        labels: torch.Tensor | None,
        seed: int,
        *,
        only_labels: bool = False,
    ) -> dict[str, torch.Tensor]:
        from omegaconf import OmegaConf

        model = observed.model
        facts = {"modality": "vision", "task": "classification", "classes": observed.classes}
        metadata = OmegaConf.create(facts | self._normalisation | {"shape": list(observed.sample_shape)})
        sent = {
            "parameters": [parameter.detach() for parameter in model.parameters()],
            "buffers": list(model.buffers()),
            "metadata": metadata,
        }
        got = {
            "gradients": list(observed.tensors(observed.gradient).values()),
            "buffers": None,
            "metadata": {"num_data_points": observed.samples, "labels": labels, "local_hyperparams": None},
        }
        place = {"device": torch.device("cpu"), "dtype": torch.float32}
        attack = self._attacks.prepare_attack(model, nn.CrossEntropyLoss(), settings, place)
        torch.manual_seed(seed)
        if only_labels:
            return {"labels": attack.prepare_attack([sent], [got])[1]}
        found: dict[str, torch.Tensor] = attack.reconstruct([sent], [got], {})[0]
        return found
