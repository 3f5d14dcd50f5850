"""The settings of all methods, so that a run of several has one argument for them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from shieldfl.errors import ParameterError
from shieldfl.methods.alt_fl.settings import AltFlSettings, DpSgdSettings
from shieldfl.methods.batch_crypt.settings import BatchCryptSettings
from shieldfl.methods.dict_pfl.settings import DictPflSettings
from shieldfl.methods.encrypted_sum.encryption_settings import (
    EncryptionSettings,
    FedMlHeSettings,
    MaskCryptSettings,
)
from shieldfl.methods.noised_average.dp_fedavg_settings import DpFedAvgSettings
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.methods.sense_crypt.settings import SenseCryptSettings

__all__ = ["MethodSettings"]


@dataclass(frozen=True)
class MethodSettings:
    """One entry for each method that has settings of its own; the defaults are theirs."""

    selective_shield: SelectiveShieldSettings = field(default_factory=SelectiveShieldSettings)
    sense_crypt: SenseCryptSettings = field(default_factory=SenseCryptSettings)
    full_he: EncryptionSettings = field(default_factory=EncryptionSettings)
    plain_he: EncryptionSettings = field(
        default_factory=lambda: EncryptionSettings(encryption="paillier-single")
    )
    top_2: EncryptionSettings = field(default_factory=EncryptionSettings)
    fedml_he: FedMlHeSettings = field(default_factory=FedMlHeSettings)
    mask_crypt: MaskCryptSettings = field(default_factory=MaskCryptSettings)
    dict_pfl: DictPflSettings = field(default_factory=DictPflSettings)
    batch_crypt: BatchCryptSettings = field(default_factory=BatchCryptSettings)
    alt_fl_pi: AltFlSettings = field(default_factory=AltFlSettings)
    alt_fl_si_dp: AltFlSettings = field(default_factory=AltFlSettings)
    alt_fl_si_he: AltFlSettings = field(default_factory=AltFlSettings)
    alt_fl_mp: AltFlSettings = field(default_factory=AltFlSettings)
    dp_sgd: DpSgdSettings = field(default_factory=DpSgdSettings)
    dp_fedavg: DpFedAvgSettings = field(default_factory=DpFedAvgSettings)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names under which :meth:`changed` knows the entries."""
        return tuple(entry.name.replace("_", "-") for entry in fields(cls))

    def of(self, method: str) -> Any:
        """Return a method's entry; None for one without settings."""
        return getattr(self, method.replace("-", "_")) if method in self.names() else None

    def changed(self, name: str, values: Mapping[str, Any]) -> MethodSettings:
        """Return settings in which some fields of one entry have other values.

        Lists and single values become tuples, and whole numbers floats, where the field's type says so: values can
        come from TOML.
        Raises ParameterError for an unknown entry or field, a value of another type, and what the entry refuses.
        """
        if name not in self.names():
            raise ParameterError(
                f"no method's settings are called {name!r}: choose from {', '.join(self.names())}"
            )
        attribute = name.replace("-", "_")
        entry = getattr(self, attribute)
        known = get_type_hints(type(entry))
        for key in values:
            if key not in known:
                raise ParameterError(f"{name} has no setting {key!r}: choose from {', '.join(known)}")
        fitted = {key: _fitted(f"{name}.{key}", value, known[key]) for key, value in values.items()}
        return replace(self, **{attribute: replace(entry, **fitted)})


def _fitted(what: str, value: Any, declared: Any) -> Any:
    """Return the value in the first type of the declared ones that it fits."""
    for kind in get_args(declared) if isinstance(declared, UnionType) else (declared,):
        with suppress(TypeError, OverflowError):
            return _as_type(value, kind)
    name = declared.__name__ if isinstance(declared, type) else str(declared)
    raise ParameterError(f"{what} must be of the type {name}, not {value!r}")


def _as_type(value: Any, kind: Any) -> Any:
    """Raise TypeError for a value of another type, OverflowError for a whole number that no float holds."""
    if get_origin(kind) is tuple:
        items = value if isinstance(value, list | tuple) else (value,)
        return tuple(_as_type(item, get_args(kind)[0]) for item in items)
    if kind is float and type(value) is int:
        return float(value)
    # Exactly: a bool is no int here.
    if type(value) is not kind:
        raise TypeError
    return value
