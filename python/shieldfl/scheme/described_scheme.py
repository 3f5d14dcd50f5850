"""What frames state of their parameters, where all of these follow from a few settings, whatever the scheme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from shieldfl.errors import ParameterError
from shieldfl.scheme.core import CoreCiphertext
from shieldfl.scheme.interface import Fact, FrameBody, Scheme

__all__ = ["DescribedCiphertext", "DescribedScheme"]


class DescribedCiphertext(CoreCiphertext, Protocol):
    """A checked frame of a batch or a total, which states its parameters."""

    @property
    def facts(self) -> dict[str, Any]:
        """The parameters, as the core's parameters have them."""


class DescribedScheme(Scheme):
    """A scheme whose ``Parameters`` name in ``_SETTINGS`` the keywords that make them."""

    def _public_key_body(self, frame: bytes) -> FrameBody:
        parameters = self.PublicKey.from_bytes(frame).parameters
        return FrameBody(parameters=self._named(parameters._facts), description=parameters.describe())

    def _ciphertext_body(self, ciphertext: DescribedCiphertext) -> FrameBody:
        facts = ciphertext.facts
        description = self._derived_description(facts, ciphertext.parameter_id)
        return FrameBody(FrameBody.counts_of(ciphertext), self._named(facts), description)

    def _named(self, facts: Mapping[str, Any]) -> dict[str, Fact]:
        """Return parameters by names as people write them."""
        return FrameBody.spaced(facts)

    def _derived_description(self, facts: Mapping[str, Any], parameter_id: bytes) -> str:
        """Derive the parameters anew; empty where another version of shieldfl derived them differently."""
        try:
            parameters = self.Parameters(**{name: facts[name] for name in self.Parameters._SETTINGS})
        except ParameterError:
            return ""
        return parameters.describe() if parameters.id == parameter_id else ""
