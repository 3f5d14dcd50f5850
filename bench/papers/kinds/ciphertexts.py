"""Bytes and seconds of one client's ciphertexts of a number of values."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

import shieldfl as sf
from papers.kinds import Measured, check_keys
from shieldfl.errors import ParameterError

__all__ = ["FIGURES", "check", "measure"]

FIGURES = ("ciphertext_bytes", "frame_bytes", "encrypt_seconds")
_KEYS = ("scheme", "values", "parameters")
_SCHEMES = ("paillier", "ckks")


def check(settings: Mapping[str, Any]) -> None:
    """Raise ParameterError for a scheme, or parameters of it, that there are not."""
    check_keys(settings, _KEYS, "ciphertexts")
    if settings["scheme"] not in _SCHEMES:
        raise ParameterError(f"unknown scheme {settings['scheme']!r}: choose one of {', '.join(_SCHEMES)}")
    _parameters(settings["scheme"], settings["parameters"])


def _parameters(scheme: str, given: Mapping[str, Any]) -> Any:
    try:
        return getattr(sf, scheme).Parameters(**given)
    except TypeError as error:
        raise ParameterError(f"there are no such parameters of {scheme}: {error}") from None


@cache
def _encryptor(scheme: str, given: tuple[tuple[str, Any], ...]) -> Any:
    authority = sf.KeyAuthority(_parameters(scheme, dict(given)))
    return getattr(sf, scheme).Encryptor(authority.public_key, threads=1)


def measure(settings: Mapping[str, Any]) -> Measured:
    """Return what so many values take: bytes of the ciphertexts alone, of the whole frame, and seconds of one thread.

    Ciphertexts are what a frame of so many values has more than an empty one has.
    """
    encryptor = _encryptor(settings["scheme"], tuple(sorted(settings["parameters"].items())))
    values = np.random.default_rng(0).normal(0.0, 0.1, settings["values"])
    encryptor.encrypt(values[:1], round=0)  # tables of powers are made with the first
    began = time.perf_counter()
    batch = encryptor.encrypt(values, round=1)
    seconds = time.perf_counter() - began
    frame, empty = (
        len(one.to_bytes())
        for one in (batch, encryptor.encrypt(values, sf.Mask.from_indices([], len(values)), round=1))
    )
    return {"ciphertext_bytes": frame - empty, "frame_bytes": frame, "encrypt_seconds": seconds}
