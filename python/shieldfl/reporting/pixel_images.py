"""Small images side by side as one PNG file, a pixel of which is a pixel of theirs."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["render_row"]


def render_row(images: NDArray[np.uint8], gap: int) -> bytes:
    """Return a PNG file of images (k, height, width, 3), ``gap`` transparent pixels between each and the next.

    Nothing in the file changes from run to run. matplotlib is imported when the first one is made.
    """
    from matplotlib.image import imsave

    count, height, width, _ = images.shape
    row = np.zeros((height, count * (width + gap) - gap, 4), dtype=np.uint8)
    for number, image in enumerate(images):
        left = number * (width + gap)
        row[:, left : left + width, :3] = image
        row[:, left : left + width, 3] = 255
    buffer = io.BytesIO()
    # Which version wrote the file is left out.
    metadata: dict[str, Any] = {"Software": None}
    imsave(buffer, row, format="png", metadata=metadata, pil_kwargs={"optimize": True})
    return buffer.getvalue()
