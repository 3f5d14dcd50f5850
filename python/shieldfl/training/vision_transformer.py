"""A small vision transformer for images of about 32 x 32 pixels, in plain torch.

Source: Dosovitskiy et al., "An Image is Worth 16x16 Words" (2021): pre-norm blocks and learned positions, with the
mean over all patches in place of a class token.
"""

from __future__ import annotations

import torch
from torch import nn

from shieldfl.errors import ParameterError

__all__ = ["VisionTransformer"]

_IMAGE_RANK = 3  # channels, height, width


class VisionTransformer(nn.Module):
    """Float32 images (N, *image_shape) to (N, classes) logits.

    Parameters
    ----------
    image_shape : (channels, height, width); height and width are multiples of ``patch``.
    classes : number of classes.
    patch : side of a square patch, in pixels.
    width : numbers that describe a patch between blocks; a multiple of ``heads``.
    depth : number of blocks.
    heads : attention heads of a block.

    Raises
    ------
    ParameterError
        For a shape that is not cut into whole patches.
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        classes: int,
        patch: int = 4,
        width: int = 128,
        depth: int = 6,
        heads: int = 4,
    ) -> None:
        super().__init__()
        if len(image_shape) != _IMAGE_RANK or any(side % patch for side in image_shape[1:]):
            raise ParameterError(
                f"a vision transformer needs images of (channels, height, width), both sides multiples of {patch}, "
                f"got {image_shape}"
            )
        channels, rows, columns = image_shape
        self.patches = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)
        self.positions = nn.Parameter(torch.empty(1, (rows // patch) * (columns // patch), width))
        nn.init.trunc_normal_(self.positions, std=0.02)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Cut into patches, mix them, average, classify."""
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        logits: torch.Tensor = self.head(self.norm(self.blocks(tokens)).mean(dim=1))
        return logits


class _Block(nn.Module):
    """Attention among the patches, then a network of two layers for each, both added to their input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = _SelfAttention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens + self.attention(self.attention_norm(tokens))
        mixed: torch.Tensor = tokens + self.mlp(self.mlp_norm(tokens))
        return mixed


class _SelfAttention(nn.Module):
    """Scaled dot-product attention of (N, patches, width) to itself, in several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        samples, patches, width = tokens.shape
        by_head = self.qkv(tokens).view(samples, patches, 3, self._heads, width // self._heads)
        queries, keys, values = by_head.permute(2, 0, 3, 1, 4).unbind()
        attended = nn.functional.scaled_dot_product_attention(queries, keys, values)
        projected: torch.Tensor = self.projection(attended.transpose(1, 2).reshape(samples, patches, width))
        return projected
