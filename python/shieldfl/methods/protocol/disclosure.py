"""What a client's messages of one round show, and to whom: stated by the method, checked against the bytes by tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shieldfl.masks import Mask
from shieldfl.privacy.events import Noise

__all__ = ["Disclosure"]


@dataclass(frozen=True)
class Disclosure:
    """Which of a model's P parameters left a client, and protected how.

    The three masks are of P positions and disjoint; what is in none of them stayed with the client.
    """

    encrypted: Mask
    noised: Mask
    clear: Mask
    parts: tuple[str, ...] = ()
    """Names of further message parts that depend on the client's data and travel unprotected, such as a mask."""
    buffers: Literal["local", "encrypted", "noised", "clear"] = "local"
    """What became of BatchNorm statistics."""
    synthetic: bool = False
    """Whether the values come from training on synthetic data alone, and so tell no more than those data and the model
    do that it began with."""
    noise: Noise | None = None
    """Of the noised values, what is charged for; None where there are none, or where no proof covers their noise."""
    encrypts_noised: bool = False
    """Whether the encrypted parameters have that noise too; where it is None, a share of their sum's."""

    @classmethod
    def of_nothing(cls, size: int) -> Disclosure:
        """Nothing has left yet."""
        nothing = Mask.empty(size)
        return cls(nothing, nothing, nothing)

    @classmethod
    def of_zone(
        cls,
        zone: Mask,
        size: int,
        *,
        rest: Literal["local", "noised", "clear"] = "clear",
        parts: tuple[str, ...] = (),
        synthetic: bool = False,
        noise: Noise | None = None,
    ) -> Disclosure:
        """State an update that is encrypted in the zone, of ``size`` parameters and then buffers.

        ``rest`` is what became of the other positions. Buffers count as encrypted if all are. ``noise`` is what all
        parameters have, wherever they are.
        """
        encrypted, nothing = zone.resized(size), Mask.empty(size)
        all_buffers = zone.count - encrypted.count == zone.size - size
        return cls(
            encrypted,
            ~encrypted if rest == "noised" else nothing,
            ~encrypted if rest == "clear" else nothing,
            parts,
            "encrypted" if all_buffers else rest,
            synthetic,
            noise,
            encrypts_noised=noise is not None,
        )

    @property
    def kept(self) -> Mask:
        """What stayed with the client."""
        return ~(self.encrypted | self.noised | self.clear)

    def is_of(self, size: int) -> bool:
        """Say whether its masks are of ``size`` positions, and disjoint."""
        masks = (self.encrypted, self.noised, self.clear)
        if any(one.size != size for one in masks):
            return False
        return sum(one.count for one in masks) == (self.encrypted | self.noised | self.clear).count

    def shares(self) -> dict[str, float]:
        """Return the parameters' shares by what was done with them, summing to 1 (see RoundRecord.zone_shares)."""
        size = self.encrypted.size
        zones = {
            "encrypted": self.encrypted,
            "personalised": self.kept,
            "noise": self.noised,
            "clear": self.clear,
        }
        return {name: zone.count / size for name, zone in zones.items()}
