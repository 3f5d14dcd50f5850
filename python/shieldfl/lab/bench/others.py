"""What ours is compared with: a plain copy, SEAL, TenSEAL, Flower's secure aggregation, python-paillier and HEU."""

from __future__ import annotations

import base64
import importlib
import inspect
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
import shieldfl._seal_baseline as _seal_baseline
from shieldfl.build_info import how_to_install
from shieldfl.lab.bench.measurement import FRACTION_BITS, Scheme, Selection, from_fixed_point, to_fixed_point


@dataclass(frozen=True)
class Peer:
    """A library that may be missing."""

    packages: tuple[str, ...]
    """What is imported of it."""
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


class PlainCopy(Scheme):
    """A copy of float32 values that are gathered already, into memory that is there already; sums in float32."""

    def __init__(self) -> None:
        super().__init__(
            "plain copy",
            "memcpy of the float32 values into memory that is there already, sums in float32: nothing is protected",
        )
        self._sent = np.empty(0, np.float32)

    def encrypt(self, selection: Selection) -> NDArray[np.float32]:
        """Copy. All frames share the memory, and hold the same values."""
        if self._sent.size != selection.values.size:
            self._sent = np.empty_like(selection.values)
        np.copyto(self._sent, selection.values)
        return self._sent

    def serialise(self, encrypted: NDArray[np.float32]) -> NDArray[np.uint8]:
        return encrypted.view(np.uint8)

    def start_sum(self, frame: NDArray[np.uint8]) -> NDArray[np.float32]:
        return frame.view(np.float32).copy()

    def add(self, total: NDArray[np.float32], frame: NDArray[np.uint8]) -> None:
        np.add(total, frame.view(np.float32), out=total)

    def open(self, closed: NDArray[np.float32]) -> NDArray[np.float64]:
        return closed.astype(np.float64)


# Half a step of the default fixed point, 2^-20, is what quantising costs; these two are no worse than that.
_SEAL_TOLERANCE = 2.0**-21
_SEAL_SETTINGS: tuple[tuple[int, tuple[int, ...], int], ...] = ((2048, (54,), 40), (4096, (54, 55), 40))


def seal_baselines(threads: int, most_values: int) -> list[_Seal]:
    """Return SEAL at the rings of this library: N = 2048 with one prime, N = 4096 with two.

    The second of two primes is kept for key switching, which SEAL's context with several primes always prepares.
    """
    return [_Seal(*setting, threads, most_values) for setting in _SEAL_SETTINGS]


class _Seal(Scheme):
    """CKKSEncoder, Encryptor, save, load, Evaluator, Decryptor; the loop over ciphertexts is in C++."""

    def __init__(
        self, degree: int, prime_bits: tuple[int, ...], log2_scale: int, threads: int, most_values: int
    ) -> None:
        primes = ",".join(map(str, prime_bits))
        super().__init__(
            f"SEAL {degree} [{primes}]",
            f"SEAL {_core.seal_version()}, CKKS slots, N = {degree}, primes of [{primes}] bits, scale 2^{log2_scale}, "
            "public key, uncompressed",
            most_values,
            values_per_ciphertext=degree // 2,
            tolerance=_SEAL_TOLERANCE,
        )
        self._threads = threads
        self._seal = _seal_baseline.SealGeneralPath(degree, prime_bits, log2_scale)

    def encrypt(self, selection: Selection) -> _seal_baseline.SealCiphertexts:
        return self._seal.encrypt(self.sample(selection), self._threads)

    def serialise(self, encrypted: _seal_baseline.SealCiphertexts) -> _seal_baseline.SealSavedCiphertexts:
        """Save without compression, which is SEAL's fastest."""
        return self._seal.save(encrypted, self._threads)

    def size_bytes(self, frame: _seal_baseline.SealSavedCiphertexts) -> int:
        return frame.nbytes

    def start_sum(self, frame: _seal_baseline.SealSavedCiphertexts) -> _seal_baseline.SealCiphertexts:
        return self._seal.load(frame, self._threads)

    def add(self, total: _seal_baseline.SealCiphertexts, frame: _seal_baseline.SealSavedCiphertexts) -> None:
        self._seal.load_and_add(frame, total, self._threads)

    def open(self, closed: _seal_baseline.SealCiphertexts) -> NDArray[np.float64]:
        return self._seal.open(closed, self._threads)


# Degree, primes, scale, and how far off a value may be. The example of its documentation; the leanest one that keeps
# 24-bit values (half a step of 2^-20) and room for 64 clients' sum; the leanest one at all, which keeps 16-bit values
# (half a step of 2^-12). TenSEAL always makes key-switching keys, so one prime alone is refused.
_TENSEAL_SETTINGS: tuple[tuple[int, tuple[int, ...], int, float], ...] = (
    (8192, (60, 40, 40, 60), 40, 2.0**-21),
    (4096, (46, 20), 36, 2.0**-21),
    (2048, (38, 16), 28, 2.0**-13),
)


def tenseal_baselines(threads: int, most_values: int) -> list[_TenSeal]:
    """Return TenSEAL at three settings. Raises ModuleNotFoundError where it is not installed."""
    tenseal = importlib.import_module("tenseal")
    return [_TenSeal(tenseal, *setting, threads, most_values) for setting in _TENSEAL_SETTINGS]


class _TenSeal(Scheme):
    """One CKKSVector for each ciphertext, made from a NumPy slice.

    Lists, one long vector and batched tensors were tried: none is faster.
    """

    def __init__(
        self,
        tenseal: Any,
        degree: int,
        prime_bits: tuple[int, ...],
        log2_scale: int,
        tolerance: float,
        threads: int,
        most_values: int,
    ) -> None:
        primes = ",".join(map(str, prime_bits))
        super().__init__(
            f"TenSEAL {degree} [{primes}]",
            f"TenSEAL {tenseal.__version__}, CKKS, poly_modulus_degree {degree}, coeff_mod_bit_sizes [{primes}], "
            f"global_scale 2^{log2_scale}, public key",
            most_values,
            values_per_ciphertext=degree // 2,
            tolerance=tolerance,
        )
        self._tenseal = tenseal
        self._slots = degree // 2
        self._context = tenseal.context(
            tenseal.SCHEME_TYPE.CKKS, degree, coeff_mod_bit_sizes=list(prime_bits), n_threads=threads
        )
        self._context.global_scale = 2.0**log2_scale

    def encrypt(self, selection: Selection) -> list[Any]:
        values = self.sample(selection)
        vector, context, slots = self._tenseal.ckks_vector, self._context, self._slots
        return [vector(context, values[start : start + slots]) for start in range(0, values.size, slots)]

    def serialise(self, encrypted: list[Any]) -> list[bytes]:
        """Serialise; TenSEAL compresses, and cannot be told not to."""
        return [vector.serialize() for vector in encrypted]

    def start_sum(self, frame: list[bytes]) -> list[Any]:
        return [self._tenseal.ckks_vector_from(self._context, part) for part in frame]

    def add(self, total: list[Any], frame: list[bytes]) -> None:
        for vector, part in zip(total, frame, strict=True):
            vector.add_(self._tenseal.ckks_vector_from(self._context, part))

    def open(self, closed: list[Any]) -> NDArray[np.float64]:
        return np.concatenate([np.asarray(vector.decrypt(), dtype=np.float64) for vector in closed])


_FLOWER_CLIENTS = 64
# The workflow has no default for the shares: its example's, which are the fewest that it takes, and one for each
# client, which is SecAgg. A client keeps a share of its own and has a neighbour for each other one.
_FLOWER_SHARES = (3, _FLOWER_CLIENTS)


def flower_baselines(most_values: int) -> list[FlowerBaseline]:
    """Return Flower with the fewest neighbours and with all clients. Raises ModuleNotFoundError where it is missing."""
    modules = {name.rpartition(".")[2]: importlib.import_module(name) for name in _FLOWER_MODULES}
    return [FlowerBaseline(modules, shares - 1, most_values) for shares in _FLOWER_SHARES]


class FlowerBaseline(Scheme):
    """The client's stage that has a cost for each value, from float32 values to bytes, by Flower's own functions.

    In it: the weight, clipping and quantising, the client's own mask, one mask for each neighbour, the modulus, and
    serialising. Not in it: keys and agreeing on them, Shamir's shares, and what the server does to take masks off.
    """

    untimed = frozenset(
        {"close", "open"}
    )  # the server makes a mask for each client, and more for each that is lost

    def __init__(self, modules: dict[str, Any], neighbours: int, most_values: int) -> None:
        workflow = inspect.signature(modules["workflow"].SecAggPlusWorkflow).parameters
        self._clipping, self._quantised, self._modulus = (
            workflow[name].default for name in ("clipping_range", "quantization_range", "modulus_range")
        )
        super().__init__(
            f"Flower SecAgg{'' if neighbours == _FLOWER_CLIENTS - 1 else '+'}, {neighbours} neighbours",
            f"flwr {metadata.version('flwr')}, the client's masking among {_FLOWER_CLIENTS} clients: {neighbours + 1} "
            f"shares, so {neighbours} neighbours, clipping range {self._clipping:g}, quantisation range "
            f"{self._quantised:,}, modulus {self._modulus:,}, one thread; without key agreement, "
            "Shamir's shares and unmasking",
            most_values,
            # Rounding is random: by up to a step.
            tolerance=2 * self._clipping / self._quantised,
        )
        self._common, self._arithmetic = modules["common"], modules["ndarrays_arithmetic"]
        self._quantize, self._dequantize = (
            modules["quantization"].quantize,
            modules["quantization"].dequantize,
        )
        self._mask_of = modules["secaggplus_utils"].pseudo_rand_gen
        self._own_seed = secrets.token_bytes(32)
        # As generate_shared_key returns them. The masks of half of the neighbours are added, the others subtracted.
        keys = [base64.urlsafe_b64encode(secrets.token_bytes(32)) for _ in range(neighbours)]
        self._added, self._subtracted = keys[::2], keys[1::2]

    def encrypt(self, selection: Selection) -> list[NDArray[Any]]:
        """Weigh, quantise and mask, as the client's mod does after training; the weight is the largest allowed."""
        arithmetic = self._arithmetic
        ratio = self._quantised
        parameters = arithmetic.parameters_multiply([self.sample(selection)], ratio / self._quantised)
        quantised = self._quantize(parameters, self._clipping, self._quantised)
        return self._masked(arithmetic.factor_combine(ratio, quantised))

    def _masked(self, arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
        arithmetic, shapes = self._arithmetic, [array.shape for array in arrays]
        for seed in (self._own_seed, *self._added):
            arrays = arithmetic.parameters_addition(arrays, self._mask_of(seed, self._modulus, shapes))
        for seed in self._subtracted:
            arrays = arithmetic.parameters_subtraction(arrays, self._mask_of(seed, self._modulus, shapes))
        masked: list[NDArray[Any]] = arithmetic.parameters_mod(arrays, self._modulus)
        return masked

    def serialise(self, encrypted: list[NDArray[Any]]) -> list[bytes]:
        return [self._common.ndarray_to_bytes(array) for array in encrypted]

    def start_sum(self, frame: list[bytes]) -> list[Any]:
        return [[self._common.bytes_to_ndarray(part) for part in frame], 1]

    def add(self, total: list[Any], frame: list[bytes]) -> None:
        """Read a frame and add it, as the server does."""
        arrays = [self._common.bytes_to_ndarray(part) for part in frame]
        total[:] = self._arithmetic.parameters_addition(total[0], arrays), total[1] + 1

    def open(self, closed: list[Any]) -> NDArray[np.float64]:
        """Take the client's masks off as often as it is in the sum, as if all neighbours were lost, and dequantise."""
        arrays, frames = closed
        masks = self._masked([np.zeros_like(array) for array in arrays])
        arithmetic = self._arithmetic
        unmasked = arithmetic.parameters_subtraction(arrays, arithmetic.parameters_multiply(masks, frames))
        ratio, sums = arithmetic.factor_extract(arithmetic.parameters_mod(unmasked, self._modulus))
        (values,) = self._dequantize(sums, self._clipping, self._quantised)
        opened: NDArray[np.float64] = values - (ratio / self._quantised - 1) * self._clipping
        return opened


def phe_baseline(key_bits: int, threads: int, ciphertexts: int) -> _Phe:
    """Return phe with a fresh key. Raises ModuleNotFoundError where phe, or the gmpy2 it is fast with, is missing."""
    return _Phe(
        importlib.import_module("phe"), importlib.import_module("gmpy2"), key_bits, threads, ciphertexts
    )


class _Phe(Scheme):
    """python-paillier, the library that SenseCrypt encrypts with (section 4.1), with gmpy2: its raw functions.

    ``PaillierPublicKey.encrypt`` takes as long as ``raw_encrypt``, ``EncryptedNumber + EncryptedNumber`` longer than
    ``mulmod`` on GMP's numbers. phe uses one thread; on several, each gets a share of the numbers, while GMP works
    without the interpreter's lock.
    """

    def __init__(self, phe: Any, gmpy2: Any, key_bits: int, threads: int, ciphertexts: int) -> None:
        if not phe.util.HAVE_GMP:
            raise ModuleNotFoundError(PHE.how_to_install, name="gmpy2")
        super().__init__(
            "phe + gmpy2",
            f"phe {phe.__version__} with gmpy2 {gmpy2.version()}, raw_encrypt and mulmod, {key_bits} bits",
            ciphertexts,
            fraction_bits=FRACTION_BITS,
        )
        self._public_key, self._secret_key = phe.generate_paillier_keypair(n_length=key_bits)
        self._mulmod = phe.util.mulmod
        self._mpz = gmpy2.mpz
        self._modulus = gmpy2.mpz(self._public_key.n)
        self._modulus_square = gmpy2.mpz(self._public_key.nsquare)
        self._ciphertext_bytes = key_bits // 4
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, initializer=_work_without_the_lock, initargs=(gmpy2,))

    def _map(self, function: Callable[..., Any], *numbers: Sequence[Any]) -> list[Any]:
        if self._threads == 1:
            return list(map(function, *numbers))
        share = -(-len(numbers[0]) // self._threads)
        starts = range(0, len(numbers[0]), share)
        parts = [[sequence[start : start + share] for sequence in numbers] for start in starts]
        results = self._pool.map(lambda part: list(map(function, *part)), parts)
        return [number for result in results for number in result]

    def encrypt(self, selection: Selection) -> list[int]:
        """Encrypt each value; a negative one is its difference from n."""
        modulus = self._public_key.n
        numbers = [number % modulus for number in to_fixed_point(self.sample(selection)).tolist()]
        return self._map(self._public_key.raw_encrypt, numbers)

    def serialise(self, encrypted: list[int]) -> list[bytes]:
        """Return the ciphertexts' bytes; phe has no format of its own for them."""
        return [number.to_bytes(self._ciphertext_bytes, "big") for number in encrypted]

    def load(self, frame: list[bytes]) -> list[Any]:
        """Return GMP's numbers, which phe adds faster than Python's; nothing is checked."""
        return [self._mpz(int.from_bytes(part, "big")) for part in frame]

    def start_sum(self, frame: list[bytes]) -> list[Any]:
        return self.load(frame)

    def add(self, total: list[Any], frame: list[Any]) -> None:
        modulus_square, mulmod = self._modulus_square, self._mulmod
        total[:] = self._map(lambda left, right: mulmod(left, right, modulus_square), total, frame)

    def add_with_clear(self, total: list[Any], loaded: list[Any], clear: NDArray[np.float32]) -> None:
        """Multiply each ciphertext by 1 + n m, and then the ciphertexts.

        Faster than ``EncryptedNumber + float`` and than ``raw_encrypt(m, r_value=1)``, which inverts where m < 0.
        """
        modulus, modulus_square, mulmod = self._modulus, self._modulus_square, self._mulmod

        def add_both(left: Any, right: Any, number: int) -> Any:
            return mulmod(left, mulmod(right, 1 + modulus * number, modulus_square), modulus_square)

        total[:] = self._map(add_both, total, loaded, to_fixed_point(clear).tolist())

    def open(self, closed: list[Any]) -> NDArray[np.float64]:
        modulus = self._public_key.n
        plaintexts = self._map(self._secret_key.raw_decrypt, [int(number) for number in closed])
        signed = [number - modulus if number > modulus // 2 else number for number in plaintexts]
        return from_fixed_point(np.array(signed, dtype=np.int64))


def _work_without_the_lock(gmpy2: Any) -> None:
    gmpy2.get_context().allow_release_gil = True


def heu_baselines(key_bits: int, ciphertexts: int) -> list[_Heu]:
    """Return HEU's Paillier and, for information, the scheme of Okamoto and Uchiyama, whose ciphertexts are smaller.

    They use all cores that the process is bound to, however many threads anybody asks for. Raises ModuleNotFoundError
    where HEU is not installed.
    """
    phe, arrays = (importlib.import_module(f"heu.{part}") for part in ("phe", "numpy"))
    return [_Heu(phe, arrays, schema, key_bits, ciphertexts) for schema in ("ZPaillier", "OU")]


class _Heu(Scheme):
    """Whole arrays, which HEU spreads over its threads by itself."""

    def __init__(self, phe: Any, arrays: Any, schema: str, key_bits: int, ciphertexts: int) -> None:
        super().__init__(
            f"HEU {schema}",
            f"sf-heu {metadata.version('sf-heu')}, {schema}, {key_bits} bits, on all cores of its process",
            ciphertexts,
            fraction_bits=FRACTION_BITS,
        )
        self._kit = arrays.setup(getattr(phe.SchemaType, schema), key_bits)
        self._arrays = arrays
        self._encoder = self._kit.integer_encoder(1)
        self._encryptor, self._evaluator = self._kit.encryptor(), self._kit.evaluator()
        self._decryptor = self._kit.decryptor()

    def _encode(self, values: NDArray[np.float32]) -> Any:
        return self._kit.array(to_fixed_point(values), self._encoder)

    def encrypt(self, selection: Selection) -> Any:
        return self._encryptor.encrypt(self._encode(self.sample(selection)))

    def serialise(self, encrypted: Any) -> bytes:
        frame: bytes = encrypted.serialize()
        return frame

    def load(self, frame: bytes) -> Any:
        return self._arrays.CiphertextArray.load_from(frame)

    def start_sum(self, frame: bytes) -> list[Any]:
        """Load the first frame; the list makes room for the array that ``add`` returns."""
        return [self.load(frame)]

    def add(self, total: list[Any], frame: Any) -> None:
        total[0] = self._evaluator.add(total[0], frame)

    def add_with_clear(self, total: list[Any], loaded: Any, clear: NDArray[np.float32]) -> None:
        """Add the encoded values to the ciphertexts, and these to the sum."""
        total[0] = self._evaluator.add(total[0], self._evaluator.add(loaded, self._encode(clear)))

    def open(self, closed: list[Any]) -> NDArray[np.float64]:
        return from_fixed_point(self._decryptor.decrypt(closed[0]).to_numpy(self._encoder))
