"""Compared with this library: a plain copy, SEAL, TenSEAL, Flower's SecAgg, python-paillier and HEU."""

from __future__ import annotations

import base64
import inspect
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module, metadata
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
import shieldfl._seal_baseline as _seal_baseline
from shieldfl.build_info import how_to_install
from shieldfl.lab.bench.measurement import FRACTION_BITS, Scheme, Selection, from_fixed_point, to_fixed_point


class Peer(NamedTuple):
    """A library that may be missing."""

    packages: tuple[str, ...]
    """Names of the modules that are imported from the library."""
    how_to_install: str


_FLOWER_UTILITIES = "flwr.common.secure_aggregation"
_FLOWER_MODULES = (
    "flwr.common",
    "flwr.server.workflow",
    *(f"{_FLOWER_UTILITIES}.{part}" for part in ("ndarrays_arithmetic", "quantization", "secaggplus_utils")),
)
TENSEAL = Peer(("tenseal",), f"TenSEAL is not installed: {how_to_install('tenseal')}")
FLOWER = Peer(
    ("flwr", _FLOWER_UTILITIES, *_FLOWER_MODULES),
    f"Flower 1.41 or 1.42 is not installed: {how_to_install('flower')}",
)
PHE = Peer(("phe", "gmpy2"), f"python-paillier with gmpy2 is not installed: {how_to_install('phe')}")
HEU = Peer(("heu", "heu.phe", "heu.numpy"), f"HEU is not installed: {how_to_install('heu')}")


def plain_copy() -> Scheme:
    """Return a copy of gathered float32 values into memory that is there already."""
    sent = np.empty(0, np.float32)

    def copy(selection: Selection) -> NDArray[np.float32]:
        """Copy. All frames share the memory, and hold the same values."""
        nonlocal sent
        if sent.size != selection.values.size:
            sent = np.empty_like(selection.values)
        np.copyto(sent, selection.values)
        return sent

    return Scheme(
        name="plain copy",
        setting="memcpy of the float32 values into memory that is there already, sums in float32: nothing is "
        "protected",
        encrypt=copy,
        serialise=lambda values: values.view(np.uint8),
        start_sum=lambda frame: frame.view(np.float32).copy(),
        add=lambda total, frame: np.add(total, frame.view(np.float32), out=total),
        open=lambda total: total.astype(np.float64),
    )


# Half a step of the default fixed point, 2^-20, is what quantising costs; these two are no worse than that.
_SEAL_TOLERANCE = 2.0**-21
_SEAL_SETTINGS: tuple[tuple[int, tuple[int, ...], int], ...] = ((2048, (54,), 40), (4096, (54, 55), 40))


def seal_baselines(threads: int, most_values: int) -> list[Scheme]:
    """Return SEAL at the rings of this library: N = 2048 with one prime, N = 4096 with two.

    CKKSEncoder, Encryptor, save without compression, load, Evaluator, Decryptor; the loop over ciphertexts is
    in C++. The second of two primes is kept for key switching, which SEAL's context with several primes
    always prepares.
    """
    return [_seal(*setting, threads, most_values) for setting in _SEAL_SETTINGS]


def _seal(
    degree: int, prime_bits: tuple[int, ...], log2_scale: int, threads: int, most_values: int
) -> Scheme:
    seal = _seal_baseline.SealGeneralPath(degree, prime_bits, log2_scale)
    primes = ",".join(map(str, prime_bits))
    return Scheme(
        name=f"SEAL {degree} [{primes}]",
        setting=f"SEAL {_core.seal_version()}, CKKS slots, N = {degree}, primes of [{primes}] bits, "
        f"scale 2^{log2_scale}, public key, uncompressed",
        encrypt=lambda selection: seal.encrypt(selection.values[:most_values], threads),
        serialise=lambda encrypted: seal.save(encrypted, threads),
        start_sum=lambda frame: seal.load(frame, threads),
        add=lambda total, frame: seal.load_and_add(frame, total, threads),
        open=lambda total: seal.open(total, threads),
        size_bytes=lambda frame: frame.nbytes,
        most_values=most_values,
        values_per_ciphertext=degree // 2,
        tolerance=_SEAL_TOLERANCE,
    )


# Degree, primes, scale, and how far off a value may be. The example of its documentation; the leanest one
# that keeps 24-bit values (half a step of 2^-20) and room for 64 clients' sum; the leanest one at all, which
# keeps 16-bit values (half a step of 2^-12). TenSEAL always makes key-switching keys, so one prime alone is
# refused.
_TENSEAL_SETTINGS: tuple[tuple[int, tuple[int, ...], int, float], ...] = (
    (8192, (60, 40, 40, 60), 40, 2.0**-21),
    (4096, (46, 20), 36, 2.0**-21),
    (2048, (38, 16), 28, 2.0**-13),
)


def tenseal_baselines(threads: int, most_values: int) -> list[Scheme]:
    """Return TenSEAL at three settings. Raises ModuleNotFoundError where it is not installed.

    One CKKSVector for each ciphertext, made from a NumPy slice: lists, one long vector and batched tensors
    are not faster. Serialising compresses, and cannot be told not to.
    """
    tenseal = import_module("tenseal")
    return [_tenseal(tenseal, *setting, threads, most_values) for setting in _TENSEAL_SETTINGS]


def _tenseal(
    tenseal: Any,
    degree: int,
    prime_bits: tuple[int, ...],
    log2_scale: int,
    tolerance: float,
    threads: int,
    most_values: int,
) -> Scheme:
    slots = degree // 2
    context = tenseal.context(
        tenseal.SCHEME_TYPE.CKKS, degree, coeff_mod_bit_sizes=list(prime_bits), n_threads=threads
    )
    context.global_scale = 2.0**log2_scale
    vector, load = tenseal.ckks_vector, tenseal.ckks_vector_from

    def encrypt(selection: Selection) -> list[Any]:
        values = selection.values[:most_values]
        return [vector(context, values[start : start + slots]) for start in range(0, values.size, slots)]

    def add(total: list[Any], frame: list[bytes]) -> None:
        for one, part in zip(total, frame, strict=True):
            one.add_(load(context, part))

    primes = ",".join(map(str, prime_bits))
    return Scheme(
        name=f"TenSEAL {degree} [{primes}]",
        setting=f"TenSEAL {tenseal.__version__}, CKKS, poly_modulus_degree {degree}, coeff_mod_bit_sizes "
        f"[{primes}], global_scale 2^{log2_scale}, public key",
        encrypt=encrypt,
        serialise=lambda encrypted: [one.serialize() for one in encrypted],
        start_sum=lambda frame: [load(context, part) for part in frame],
        add=add,
        open=lambda total: np.concatenate([np.asarray(one.decrypt(), np.float64) for one in total]),
        size_bytes=_all_bytes,
        most_values=most_values,
        values_per_ciphertext=slots,
        tolerance=tolerance,
    )


def _all_bytes(frame: Sequence[bytes]) -> int:
    return sum(map(len, frame))


_FLOWER_CLIENTS = 64
# The workflow has no default for the shares: its example's, which are the fewest that it takes, and one for
# each client, which is SecAgg. A client keeps a share of its own and has a neighbour for each other one.
_FLOWER_SHARES = (3, _FLOWER_CLIENTS)


def flower_baselines(most_values: int) -> list[Scheme]:
    """Return Flower with the fewest neighbours and with all clients.

    Raises ModuleNotFoundError where it is missing.

    The client's stage is measured, which has a cost for each value: from float32 values to bytes, by Flower's
    own functions. It includes the weight, clipping and quantising, the client's own mask, one mask for each
    neighbour, the modulus, and serialising. It does not include keys and agreeing on them, Shamir's shares,
    and the server's removal of masks: one for each client, and more for each lost client.
    """
    modules = {name.rpartition(".")[2]: import_module(name) for name in _FLOWER_MODULES}
    return [_flower(modules, shares - 1, most_values) for shares in _FLOWER_SHARES]


def _flower(modules: dict[str, Any], neighbours: int, most_values: int) -> Scheme:
    common, arithmetic, utilities = (
        modules[name] for name in ("common", "ndarrays_arithmetic", "secaggplus_utils")
    )
    workflow = inspect.signature(modules["workflow"].SecAggPlusWorkflow).parameters
    clipping, quantised, modulus = (
        workflow[name].default for name in ("clipping_range", "quantization_range", "modulus_range")
    )
    own_seed = secrets.token_bytes(32)
    # As generate_shared_key returns them. The masks of half of the neighbours are added, the others
    # subtracted.
    keys = [base64.urlsafe_b64encode(secrets.token_bytes(32)) for _ in range(neighbours)]

    def masked(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
        shapes = [array.shape for array in arrays]
        for seed in (own_seed, *keys[::2]):
            mask = utilities.pseudo_rand_gen(seed, modulus, shapes)
            arrays = arithmetic.parameters_addition(arrays, mask)
        for seed in keys[1::2]:
            mask = utilities.pseudo_rand_gen(seed, modulus, shapes)
            arrays = arithmetic.parameters_subtraction(arrays, mask)
        in_range: list[NDArray[Any]] = arithmetic.parameters_mod(arrays, modulus)
        return in_range

    def encrypt(selection: Selection) -> list[NDArray[Any]]:
        """Weigh, quantise and mask, as the client's mod does after training.

        The weight is the largest allowed.
        """
        parameters = arithmetic.parameters_multiply([selection.values[:most_values]], 1.0)
        integers = modules["quantization"].quantize(parameters, clipping, quantised)
        return masked(arithmetic.factor_combine(quantised, integers))

    def read(frame: list[bytes]) -> list[NDArray[Any]]:
        return [common.bytes_to_ndarray(part) for part in frame]

    def add(total: list[Any], frame: list[bytes]) -> None:
        """Read a frame and add it, as the server does."""
        total[:] = arithmetic.parameters_addition(total[0], read(frame)), total[1] + 1

    def unmask(total: list[Any]) -> NDArray[np.float64]:
        """Unmask the client as often as the sum has it, as if all neighbours were lost, and dequantise."""
        arrays, frames = total
        masks = masked([np.zeros_like(array) for array in arrays])
        unmasked = arithmetic.parameters_subtraction(arrays, arithmetic.parameters_multiply(masks, frames))
        ratio, sums = arithmetic.factor_extract(arithmetic.parameters_mod(unmasked, modulus))
        (values,) = modules["quantization"].dequantize(sums, clipping, quantised)
        opened: NDArray[np.float64] = values - (ratio / quantised - 1) * clipping
        return opened

    return Scheme(
        name=f"Flower SecAgg{'' if neighbours == _FLOWER_CLIENTS - 1 else '+'}, {neighbours} neighbours",
        setting=f"flwr {metadata.version('flwr')}, the client's masking among {_FLOWER_CLIENTS} clients: "
        f"{neighbours + 1} shares, so {neighbours} neighbours, clipping range {clipping:g}, quantisation "
        f"range {quantised:,}, modulus {modulus:,}, one thread; without key agreement, Shamir's shares and "
        "unmasking",
        encrypt=encrypt,
        serialise=lambda arrays: [common.ndarray_to_bytes(array) for array in arrays],
        start_sum=lambda frame: [read(frame), 1],
        add=add,
        open=unmask,
        size_bytes=_all_bytes,
        most_values=most_values,
        tolerance=2 * clipping / quantised,  # rounding is random: by up to a step
        opens=False,
    )


def phe_baseline(key_bits: int, threads: int, ciphertexts: int) -> Scheme:
    """Return python-paillier with gmpy2 and a fresh key: SenseCrypt encrypts with this library (section 4.1).

    It uses phe's raw functions: ``PaillierPublicKey.encrypt`` takes as long as ``raw_encrypt``,
    ``EncryptedNumber + EncryptedNumber`` longer than ``mulmod`` on GMP's numbers. phe has no format of its
    own for ciphertexts, and checks nothing. It uses one thread; on several, each gets a share of the numbers,
    while GMP works without the interpreter's lock. Raises ModuleNotFoundError where phe, or the gmpy2 it is
    fast with, is missing.
    """
    phe, gmpy2 = import_module("phe"), import_module("gmpy2")
    if not phe.util.HAVE_GMP:
        raise ModuleNotFoundError(PHE.how_to_install, name="gmpy2")
    public_key, secret_key = phe.generate_paillier_keypair(n_length=key_bits)
    mulmod, modulus, square = phe.util.mulmod, gmpy2.mpz(public_key.n), gmpy2.mpz(public_key.nsquare)

    def without_the_lock() -> None:
        gmpy2.get_context().allow_release_gil = True

    pool = ThreadPoolExecutor(threads, initializer=without_the_lock)

    def mapped(function: Callable[..., Any], *numbers: Sequence[Any]) -> list[Any]:
        if threads == 1:
            return list(map(function, *numbers))
        share = -(-len(numbers[0]) // threads)
        starts = range(0, len(numbers[0]), share)
        parts = [[sequence[start : start + share] for sequence in numbers] for start in starts]
        results = pool.map(lambda part: list(map(function, *part)), parts)
        return [number for result in results for number in result]

    def encrypt(selection: Selection) -> list[int]:
        """Encrypt each value; a negative one is its difference from n."""
        numbers = to_fixed_point(selection.values[:ciphertexts]).tolist()
        return mapped(public_key.raw_encrypt, [number % public_key.n for number in numbers])

    def load(frame: list[bytes]) -> list[Any]:
        """Return GMP's numbers, which phe adds faster than Python's."""
        return [gmpy2.mpz(int.from_bytes(part, "big")) for part in frame]

    def add(total: list[Any], frame: list[Any]) -> None:
        total[:] = mapped(lambda left, right: mulmod(left, right, square), total, frame)

    def add_with_clear(total: list[Any], loaded: list[Any], clear: NDArray[np.float32]) -> None:
        """Multiply each ciphertext by 1 + n m, and then the ciphertexts.

        Faster than ``EncryptedNumber + float`` and than ``raw_encrypt(m, r_value=1)``, which inverts where m
        < 0.
        """

        def add_both(left: Any, right: Any, number: int) -> Any:
            return mulmod(left, mulmod(right, 1 + modulus * number, square), square)

        total[:] = mapped(add_both, total, loaded, to_fixed_point(clear).tolist())

    def decrypt(total: list[Any]) -> NDArray[np.float64]:
        plaintexts = mapped(secret_key.raw_decrypt, [int(number) for number in total])
        n = public_key.n
        return from_fixed_point(np.array([one - n if one > n // 2 else one for one in plaintexts], np.int64))

    return Scheme(
        name="phe + gmpy2",
        setting=f"phe {phe.__version__} with gmpy2 {gmpy2.version()}, raw_encrypt and mulmod, {key_bits} "
        "bits",
        encrypt=encrypt,
        serialise=lambda encrypted: [number.to_bytes(key_bits // 4, "big") for number in encrypted],
        load=load,
        start_sum=load,
        add=add,
        add_with_clear=add_with_clear,
        open=decrypt,
        size_bytes=_all_bytes,
        most_values=ciphertexts,
        fraction_bits=FRACTION_BITS,
    )


def heu_baselines(key_bits: int, ciphertexts: int) -> list[Scheme]:
    """Return HEU's Paillier and, for information, Okamoto and Uchiyama's scheme, of smaller ciphertexts.

    They use all cores that the process is bound to, for any requested number of threads: HEU spreads whole
    arrays over its threads by itself. Raises ModuleNotFoundError where HEU is not installed.
    """
    phe, arrays = (import_module(f"heu.{part}") for part in ("phe", "numpy"))
    return [_heu(phe, arrays, schema, key_bits, ciphertexts) for schema in ("ZPaillier", "OU")]


def _heu(phe: Any, arrays: Any, schema: str, key_bits: int, ciphertexts: int) -> Scheme:
    kit = arrays.setup(getattr(phe.SchemaType, schema), key_bits)
    encoder = kit.integer_encoder(1)
    encryptor, add, decryptor = kit.encryptor(), kit.evaluator().add, kit.decryptor()
    load = arrays.CiphertextArray.load_from

    def encode(values: NDArray[np.float32]) -> Any:
        return kit.array(to_fixed_point(values), encoder)

    def add_frame(total: list[Any], frame: Any) -> None:
        """Add a frame in place: the list has room for the array that HEU returns."""
        total[0] = add(total[0], frame)

    return Scheme(
        name=f"HEU {schema}",
        setting=f"sf-heu {metadata.version('sf-heu')}, {schema}, {key_bits} bits, on all cores of its "
        "process",
        encrypt=lambda selection: encryptor.encrypt(encode(selection.values[:ciphertexts])),
        serialise=lambda encrypted: encrypted.serialize(),
        load=load,
        start_sum=lambda frame: [load(frame)],
        add=add_frame,
        add_with_clear=lambda total, loaded, clear: add_frame(total, add(loaded, encode(clear))),
        open=lambda total: from_fixed_point(decryptor.decrypt(total[0]).to_numpy(encoder)),
        most_values=ciphertexts,
        fraction_bits=FRACTION_BITS,
    )
