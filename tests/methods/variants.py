"""Every registered method under settings that tests try it with."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np
import pytest

from shieldfl.encryption.registry import DEFAULT_PUBLIC_KEY_ENCRYPTION, scheme_named
from shieldfl.methods.registry import BUILT_IN, MethodSettings, method_class
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.methods.sense_crypt.method import SenseCryptSettings
from shieldfl.settings import settings_of
from shieldfl.testing import MethodCase

PARAMETERS = 333  # no multiple of 64
BUFFERS = 5
LAYER_OFFSETS = (0, 200, 320, PARAMETERS)
# Where each value gets a ciphertext of its own: no multiple of 64 either, and more than a word of a mask.
FEW_PARAMETERS = 70
FEW_LAYER_OFFSETS = (0, 42, 67, FEW_PARAMETERS)
CLIENTS = 4

Test = TypeVar("Test", bound=Callable[..., None])


@dataclass(frozen=True)
class Variant:
    """A method under one setting."""

    method: str
    settings: SelectiveShieldSettings
    label: str
    others: MethodSettings = field(default_factory=MethodSettings)
    """The settings of all methods but SelectiveShield."""
    opener: Literal["authority", "clients", "aggregator"] = "authority"
    """Who opens sums."""

    @property
    def averages_all(self) -> bool:
        """Whether the mean of all updates is what it gives, up to the fixed point of what is encrypted."""
        return method_class(self.method).averages_all

    @functools.cached_property
    def encryption(self) -> str | None:
        """The scheme of what its clients encrypt, and its packing; None where they encrypt nothing."""
        own = self.all_settings().of(self.method)
        return getattr(own, "encryption", None) if method_class(self.method).schemes else None

    @property
    def enrols(self) -> bool:
        """Whether each of its clients shares a key with the key authority."""
        return self.encryption is not None and scheme_named(self.encryption).enrols

    @property
    def layer_offsets(self) -> tuple[int, ...]:
        """The layers of the model that it is tried with: a small one where each value gets its own ciphertext."""
        return FEW_LAYER_OFFSETS if self.encryption == "paillier-single" else LAYER_OFFSETS

    @property
    def size(self) -> int:
        """The number of that model's parameters."""
        return self.layer_offsets[-1]

    @functools.cached_property
    def twin(self) -> Variant:
        """The same under round keys, of a method whose clients enrol."""
        return self.under(DEFAULT_PUBLIC_KEY_ENCRYPTION)

    @property
    def may_encrypt_nothing(self) -> bool:
        """Whether there are settings under which every parameter is sent in the clear."""
        method = method_class(self.method)
        changed = self.encrypting_nothing().all_settings().of(self.method)
        return not method.schemes or changed != self.all_settings().of(self.method)

    @property
    def case(self) -> MethodCase:
        """What the importable suite tries."""
        tolerance = FAINT_TOLERANCE if self.noisy else 0.0
        settings, layers = self.all_settings(), self.layer_offsets
        return MethodCase(self.method, settings, layers, BUFFERS, CLIENTS, tolerance, self.opener)

    def all_settings(self) -> MethodSettings:
        return self.others.replaced("selective-shield", self.settings)

    def with_others(self, **changes: object) -> Variant:
        """Change the settings of its method, other than SelectiveShield; fields that it does not have are ignored."""
        if (own := self.others.of(self.method)) is None:
            return self
        known = settings_of(type(own))
        fitting = {name: value for name, value in changes.items() if name in known}
        return replace(self, others=self.others.changed(self.method, fitting))

    @property
    def noisy(self) -> bool:
        return self.settings.noise_multiplier > 0.0 or self.method == "ddp-fedavg"

    def with_settings(self, **changes: object) -> Variant:
        return replace(self, settings=replace(self.settings, **changes))

    def under(self, encryption: str) -> Variant:
        """Encrypt by another scheme."""
        changed = self.with_settings(encryption=encryption).with_others(encryption=encryption)
        return replace(changed, label=f"{self.label}/{encryption}")

    def losing_nothing(self, fraction_bits: int) -> Variant:
        """Every position is encrypted or sent in the clear, with so many bits behind the point."""
        changed = self.with_settings(threshold=-1.0, consensus=1.0, fraction_bits=fraction_bits)
        return changed.with_others(fraction_bits=fraction_bits, small_percent=0.0)

    def encrypting_nothing(self) -> Variant:
        """Where the method has a zone that may be empty, it is."""
        return self.with_settings(threshold=1.0).with_others(
            exposed_share=1.0,
            exposure_decay=1e-300,
            information_bits=9.0,
            cost_weight=1e12,
            ratio=1e-9,
            encrypted_share=0.0,
        )


# Noise far below a float32 rounding of the weights, of which it may turn one or two a round; nothing is clipped.
FAINT = {"noise_multiplier": 1e-12, "clip_norm": 100.0}
# The least multiplier that discrete noise takes; the norm clips no update of these.
FAINT_DISCRETE = {"noise_distribution": "discrete-gaussian", "noise_multiplier": 2.0**-29, "clip_norm": 8.0}
# A sum has some noise at least; here shares of a few steps of 2^-25.
FAINT_IN_SUMS = {"noise_multiplier": 2e-8, "clip_norm": 8.0}
FAINT_TOLERANCE = 10 * float(np.spacing(np.float32(1.0)))

_SELECTIVE = {
    "clear": {},
    "encrypted": {"negotiation": "encrypted"},
    "hidden": {"negotiation": "encrypted", "hide_personalised": True, **FAINT},
    "hidden-discrete": {"negotiation": "encrypted", "hide_personalised": True, **FAINT_DISCRETE},
    "participants": {"divisor": "participants"},
    "buffers": {"buffers": "encrypted"},
    "encrypted-buffers": {"negotiation": "encrypted", "buffers": "encrypted"},
    "batch": {"sensitivity": "batch"},
    "per-sample": {"sensitivity": "per-sample"},
    "thresholds": {"threshold": (0.2, 0.4, 0.6, 1.0)},
}


_SENSE_CRYPT = {
    "single": {"encryption": "paillier-single", "clustering": "none"},
    "dense": {"clustering": "none", "bandwidths": (4.0, 3.0, 2.0, 1.0)},
    "ckks": {"encryption": "ckks", "clustering": "none", "compute_speeds": (1.0, 0.3)},
    "clusters": {"encryption": "kahe"},
}


# Methods that noise, without it; nothing is clipped.
_WITHOUT_NOISE = {"noise_multiplier": 0.0, "clip_norm": 1000.0}
# Alt-FL: two rounds of its first kind, one of the second. No data set says what delta is.
_ENCRYPTED_FIRST = {"interleaving_ratio": "1/4", "encrypted_share": 0.5, "delta": 1e-5}


def variants() -> list[Variant]:
    """Every registered method, those with options under each of them."""
    return list(_variants_once())


@functools.cache
def _variants_once() -> tuple[Variant, ...]:
    settings = SelectiveShieldSettings(threshold=0.5)
    with_options = ("selective-shield", "sense-crypt", "ddp-fedavg")
    found = [
        Variant(name, settings, name).with_others(
            key_bits=2048, width=32, patience_rounds=1, **_WITHOUT_NOISE, **_ENCRYPTED_FIRST
        )
        for name in BUILT_IN
        if name not in with_options
    ]
    found.append(Variant("ddp-fedavg", settings, "ddp-fedavg").with_others(key_bits=2048, **FAINT_IN_SUMS))
    found += [
        Variant(name, settings, f"{name}/{encryption}").with_others(encryption=encryption, key_bits=2048)
        for name, encryption in (("full-he", "paillier-dense"), ("fedml-he", "paillier-dense"))
    ]
    found += [
        Variant(name, settings, f"{name}/{label}").with_others(**_ENCRYPTED_FIRST | changes, key_bits=2048)
        for name, label, changes in (
            ("alt-fl-pi", "dense", {"encryption": "paillier-dense"}),
            ("alt-fl-mp", "noised", {}),
            ("alt-fl-si-dp", "noised", {}),
            ("dp-sgd", "noised", {}),
        )
    ]
    # Normal weights have more than 2 bits in 256 bins; a limit of 5 leaves something in the clear.
    found += [
        Variant(
            "sense-crypt",
            settings,
            f"sense-crypt/{label}",
            MethodSettings(sense_crypt=SenseCryptSettings(key_bits=2048, information_bits=5.0, **changes)),
        )
        for label, changes in _SENSE_CRYPT.items()
    ]
    found += [
        Variant("selective-shield", replace(settings, **changes), f"selective-shield/{label}")
        for label, changes in _SELECTIVE.items()
    ]
    return tuple(found)


def twins(of: Sequence[Variant]) -> list[Variant]:
    """Return those whose clients enrol as they are under round keys: ``full-he/ckks`` for ``full-he``."""
    return [one.twin for one in of if one.enrols]


def opened_by_clients(of: Iterable[Variant]) -> list[Variant]:
    """Return those whose clients enrol with clients that open sums themselves."""
    return [
        replace(one, opener="clients", label=f"{one.label}/opened by clients")
        for one in of
        if one.enrols and method_class(one.method).clients_can_open
    ]


def opened_by_aggregator(of: Iterable[Variant]) -> list[Variant]:
    """Return those whose clients enrol, and keep no secret from the aggregator, with it as the one that opens sums."""
    return [
        replace(one, opener="aggregator", label=f"{one.label}/opened by the aggregator")
        for one in of
        if one.enrols
        and method_class(one.method).clients_can_open
        and not method_class(one.method).needs_shared_secret
    ]


def labelled(label: str, opener: str = "authority") -> Variant:
    """Return the variant of this label, or the twin, whose sums this party opens."""
    found = next(one for one in variants() + twins(variants()) if one.label == label)
    opened_by = {"clients": opened_by_clients, "aggregator": opened_by_aggregator}
    return opened_by[opener]([found])[0] if opener in opened_by else found


# Their steps are those of another variant, with other numbers or, of two properties, both at once. The conformance
# suite and the golden rounds run them all the same, but not opened by others than the default; elsewhere they are slow.
STEPS_OF_ANOTHER = (
    "selective-shield/batch",
    "selective-shield/per-sample",
    "selective-shield/participants",
    "selective-shield/encrypted-buffers",
    "full-he/paillier-dense",
    "alt-fl-pi/dense",
)
# One of each kind of method.
TWINS_OF_EACH_KIND = ("full-he", "fedml-he", "mask-crypt", "dict-pfl", "selective-shield/encrypted")
# With one that encrypts nothing, and one under each of Paillier's packings.
ONE_OF_EACH_KIND = (*TWINS_OF_EACH_KIND, "fedavg", "batch-crypt", "sense-crypt/single")


def each_as_parameter(of: Sequence[Variant], slow: Iterable[str] = STEPS_OF_ANOTHER) -> list[Any]:
    """Return parameters of which some are slow, whoever opens sums."""
    late = set(slow)
    return [
        pytest.param(
            one, id=one.label, marks=[pytest.mark.slow] if one.label.partition("/opened")[0] in late else []
        )
        for one in of
    ]


def _slow_twins() -> list[str]:
    others = [one for one in variants() if one.label not in TWINS_OF_EACH_KIND]
    return [twin.label for twin in twins(others)]


_TURNS = 8


def by_turns(test_name: str, of: Sequence[Variant], slow: Iterable[str] = STEPS_OF_ANOTHER) -> list[Any]:
    """Return parameters of a test: one of each kind of method and, by turns, an eighth of the others; the rest is slow.

    What a test asks of methods is mostly code that those of a kind have in common. Which eighth it is goes by the
    test's name, so that each variant is in an eighth of all tests on average.
    """
    turn, late, place = zlib.crc32(test_name.encode()), set(slow), 0
    parameters = []
    for one in of:
        fast = one.label in ONE_OF_EACH_KIND
        if not fast and one.label.partition("/opened")[0] not in late:
            fast = (place + turn) % _TURNS == 0
            place += 1
        parameters.append(pytest.param(one, id=one.label, marks=[] if fast else [pytest.mark.slow]))
    return parameters


def every_one_of(of: Sequence[Variant], slow: Iterable[str] = STEPS_OF_ANOTHER) -> Callable[[Test], Test]:
    """Return what tries a test with each of these, see :func:`by_turns`."""

    def tried(test: Test) -> Test:
        return pytest.mark.parametrize("variant", by_turns(test.__name__, of, slow))(test)

    return tried


every_variant = every_one_of(variants())
every_variant_and_twin = every_one_of(variants() + twins(variants()), (*STEPS_OF_ANOTHER, *_slow_twins()))
