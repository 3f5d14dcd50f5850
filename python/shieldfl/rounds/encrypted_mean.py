"""All roles of an encrypted mean in one process: a first step, and a reference for a federation's mean."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_real
from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.authority.total_opener import LEAST_THAT_HIDES
from shieldfl.encryption import kahe
from shieldfl.errors import ParameterError, RangeError
from shieldfl.masks import Mask, bits_of
from shieldfl.models import ModelLayout

__all__ = ["encrypted_mean"]


def encrypted_mean(
    updates: Iterable[Any],
    *,
    weights: Sequence[float] | None = None,
    mask: Mask | None = None,
    value_bits: int = 24,
    fraction_bits: int = 20,
) -> Any:
    """Average updates as a federation does: each is encrypted by its own key, and their sum alone is opened.

    **One process that has all keys protects nobody**: this shows what a mean is like. In a federation a key
    authority has the ``KeyAuthority``, each client a ``kahe.ClientKey`` and a ``kahe.Encryptor``, and the
    collector of updates a ``kahe.Aggregator``: docs/how-to/own-loop.md has the code.

    Parameters
    ----------
    updates : at least three arrays, or mappings of arrays such as state dicts, of NumPy or torch, with the
        same names and shapes. Floats are averaged; whole numbers and truth values are the first update's.
    weights : one for each update, above 0, such as its samples; None for all alike. What counts is each one
        over the largest, rounded to a multiple of ``weight_step`` of ``kahe.Parameters``.
    mask : which values are encrypted, counted through all arrays in their order; None for all. The mean of
        the others is computed in the clear.
    value_bits, fraction_bits : a value v, times its weight over the largest, becomes round(v *
        2**fraction_bits), ties to even, and must stay below 2**(value_bits - 1) in magnitude.

    Returns the mean, float64, with the first update's structure. Raises ParameterError for fewer than three
    updates, other shapes and wrong weights; ArrayTypeError for what is no array of floats; RangeError, which
    names update and array, for a value that is NaN, infinite or too large. PrecisionWarning warns of values
    that round to zero.

    Example
    -------
    >>> import numpy as np
    >>> import shieldfl as sf
    >>> updates = [{"bias": np.full(4, value)} for value in (0.5, 1.0, 3.0)]
    >>> assert np.array_equal(sf.encrypted_mean(updates)["bias"], np.full(4, 1.5))
    """
    if not isinstance(updates, Iterable) or isinstance(updates, Mapping):
        raise ParameterError(f"updates must be several in a list, not one {type(updates).__name__}")
    given = list(updates)
    if len(given) < LEAST_THAT_HIDES:
        raise ParameterError(
            f"give at least {LEAST_THAT_HIDES} updates, not {len(given)}: with two clients, each can "
            "compute the other's update from the mean"
        )
    is_mapping = isinstance(given[0], Mapping)
    named: list[Any] = given if is_mapping else [{"update": update} for update in given]
    layout = ModelLayout.of(named[0])
    chosen = Mask.full(layout.size) if mask is None else mask
    if bits_of(chosen).size != layout.size or not chosen.count:
        raise ParameterError(f"the mask must choose some of the {layout.size:,} values that an update has")
    bits = {"value_bits": value_bits, "fraction_bits": fraction_bits}
    parameters = kahe.Parameters.plan(max_clients=len(given), goal="size", count=chosen.count, **bits)
    weighted = weights is not None
    shares = [1.0] * len(given) if weights is None else _shares(weights, len(given), parameters.weight_step)
    authority = KeyAuthority(parameters, weight_bounds=(min(shares), 1.0))
    aggregator = kahe.Aggregator(authority.public_key, round=1, positions=chosen, weighted=weighted)
    mean = np.zeros(layout.size)
    for number, (update, share) in enumerate(zip(named, shares, strict=True)):
        try:
            leaves = layout.arrays_of(update)
            vector = np.concatenate([_as_float64(leaves[place.name]) for place in layout.places])
            with layout.parameters.naming_tensors():
                encryptor = kahe.Encryptor(authority.enrol(number))
                batch = encryptor.encrypt(vector, chosen, share if weighted else None, round=1)
        except (ParameterError, RangeError) as error:
            advice = str(error).replace(", lower fraction_bits, or pass clip=True", " or lower fraction_bits")
            error.args = (f"update {number}: {advice}",)
            raise
        aggregator.add(batch.to_bytes())
        mean += vector * share
    mean /= math.fsum(shares)
    chosen.scatter(authority.open_mean(aggregator.total()), mean)
    parts = dict(layout.slices())
    found = {name: mean[parts[one.name]].reshape(one.shape) for one in layout.places for name in one.names}
    structured = _structured(named[0], found)
    return structured if is_mapping else structured["update"]


def _shares(weights: Sequence[float], count: int, step: float) -> list[float]:
    numbers = [as_real(weight, "a weight") for weight in weights] if isinstance(weights, Iterable) else []
    if len(numbers) != count or not all(0.0 < weight < math.inf for weight in numbers):
        raise ParameterError(f"give each of the {count} updates a finite weight above 0")
    if min(numbers) < step * max(numbers):
        raise ParameterError(
            f"a weight is below {step:g} of the largest: leave its update out, or raise fraction_bits and "
            "value_bits"
        )
    return [round(weight / max(numbers) / step) * step for weight in numbers]


def _as_float64(leaf: Any) -> NDArray[np.float64]:
    array = leaf if isinstance(leaf, np.ndarray) else leaf.detach().cpu().double().numpy()
    return array.astype(np.float64).reshape(-1)


def _structured(
    tree: Mapping[str, Any], found: Mapping[str, NDArray[np.float64]], head: str = ""
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            made[key] = _structured(value, found, f"{head}{key}.")
        elif (array := found.get(head + key)) is None:
            made[key] = copy.deepcopy(value)
        else:
            made[key] = array.copy() if isinstance(value, np.ndarray) else sys.modules["torch"].tensor(array)
    return made
