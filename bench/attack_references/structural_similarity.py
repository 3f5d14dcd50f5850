"""How alike images look, by windows."""

from __future__ import annotations

import torch
from torch.nn.functional import conv2d

from shieldfl.errors import ParameterError

__all__ = ["ssim"]

_WINDOW, _WINDOW_DEVIATION = 11, 1.5


def ssim(images: torch.Tensor, true: torch.Tensor, value_range: tuple[float, float]) -> torch.Tensor:
    """Return the structural similarity of each image (m, channels, height, width) to its true one, (m,) in [-1, 1].

    Wang, Bovik, Sheikh, Simoncelli 2004, eq. 13, with its window (Gaussian, 11 x 11, deviation 1.5) and constants, the
    mean over windows that lie inside of the image, and over channels. Raises ParameterError for images that are smaller
    than a window.
    """
    if images.shape != true.shape or images.ndim != 4 or min(images.shape[2:]) < _WINDOW:
        raise ParameterError(
            f"the similarity needs images of (channels, height, width) from {_WINDOW} x {_WINDOW} on, "
            f"got {tuple(images.shape)} and {tuple(true.shape)}"
        )
    channels = images.shape[1]
    offsets = torch.arange(_WINDOW, dtype=torch.float64) - _WINDOW // 2
    bell = torch.exp(-offsets.square() / (2 * _WINDOW_DEVIATION**2))
    window = torch.outer(bell, bell) / bell.sum() ** 2

    def mean(values: torch.Tensor) -> torch.Tensor:
        return conv2d(values, window.expand(channels, 1, -1, -1), groups=channels)

    x, y = images.double(), true.double()
    mean_x, mean_y = mean(x), mean(y)
    variance_x, variance_y = mean(x * x) - mean_x**2, mean(y * y) - mean_y**2
    covariance = mean(x * y) - mean_x * mean_y
    peak = value_range[1] - value_range[0]
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    alike = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    apart = (mean_x**2 + mean_y**2 + c1) * (variance_x + variance_y + c2)
    return (alike / apart).flatten(1).mean(dim=1)
