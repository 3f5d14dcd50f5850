"""Paillier's engines, word for word alike; precomputed randomisers, used once, by one process."""

from __future__ import annotations

import functools
import math
import os
import random
import time

import numpy as np
import pytest

import shieldfl as sf
from encryption.child_process import run_python
from encryption.enrolled_clients import total_of
from encryption.paillier_keys import authority_for, primes, public_key_frame
from on_threads import on_threads
from reference.paillier import PublicKey, pack_fields
from shieldfl import _core, _testing

ENGINES = ["gmp", "ifma"]
STEP = 2.0**20

needs_ifma = pytest.mark.skipif(
    _core.instruction_set() != "avx512", reason="the second engine needs AVX-512 IFMA"
)
each_engine = pytest.mark.parametrize("engine", ["gmp", pytest.param("ifma", marks=needs_ifma)])


def to_words(numbers, words):
    data = b"".join(number.to_bytes(8 * words, "little") for number in numbers)
    return np.frombuffer(data, dtype=np.uint64)


def to_numbers(words, each):
    data = words.tobytes()
    return [int.from_bytes(data[i : i + 8 * each], "little") for i in range(0, len(data), 8 * each)]


def encrypt(engine, n, base, exponents, plaintexts, exponent_bits, vartime=False):
    words = n.bit_length() // 64
    residues = _testing.paillier_encrypt(
        engine,
        to_words([n], words),
        to_words([base], 2 * words),
        exponent_bits,
        to_words(exponents, (exponent_bits + 63) // 64),
        to_words(plaintexts, words),
        vartime,
    )
    return to_numbers(residues, 2 * words)


def unit_below(modulus, source):
    while math.gcd(unit := source.randrange(modulus), modulus) != 1:
        pass
    return unit


@functools.cache
def example(key_bits):
    """Any odd n, a unit, exponents and plaintexts at their borders and at random; and what they encrypt to."""
    source = random.Random(key_bits)
    n = source.getrandbits(key_bits) | 1 << (key_bits - 1) | 1
    base = unit_below(n * n, source)
    top = 2 ** (key_bits // 2) - 1
    exponents = [0, 1, 2, top, top - 1, top // 2 + 1, 255, 256, 2**64 - 1, 2**64]
    exponents.append(source.randrange(top))
    plaintexts = [n - 1, 0, 1, n // 2, n - 2] + [source.randrange(n) for _ in range(len(exponents) - 5)]
    expected = [
        (1 + m * n) * pow(base, a, n * n) % (n * n) for a, m in zip(exponents, plaintexts, strict=True)
    ]
    return n, base, exponents, plaintexts, expected


# Each length but the longest with each engine, and each engine with both kinds of time: the rest is slow.
PAIRWISE = [
    pytest.param(
        engine,
        key_bits,
        vartime,
        id=f"{engine}-{key_bits}-{'vartime' if vartime else 'constant time'}",
        marks=[
            *([needs_ifma] if engine == "ifma" else []),
            *([] if key_bits < 4096 and (place + (engine == "ifma") + vartime) % 2 else [pytest.mark.slow]),
        ],
    )
    for place, key_bits in enumerate((2048, 3072, 4096))
    for engine in ENGINES
    for vartime in (False, True)
]


@pytest.mark.parametrize(("engine", "key_bits", "vartime"), PAIRWISE)
def test_encryption_is_its_definition(engine, key_bits, vartime):
    """(1 + m n) base^a modulo n^2, in plain Python integers."""
    n, base, exponents, plaintexts, expected = example(key_bits)
    assert encrypt(engine, n, base, exponents, plaintexts, key_bits // 2, vartime) == expected


@functools.cache
def extreme_example(fill):
    """A modulus whose words are all the same, exponents, and to what several bases become when raised to these."""
    n = sum(fill << (64 * i) for i in range(32)) | 1 << 2047 | 1
    source = random.Random(fill)
    # Limbs carry in each squaring: fewer of these than in use will do.
    exponents = [source.getrandbits(256) for _ in range(8)]
    bases = (1, 2, n - 1, n + 1, n * n - 1, n * n - n - 1, unit_below(n * n, source))
    return n, exponents, {base: [pow(base, a, n * n) for a in exponents] for base in bases}


@each_engine
@pytest.mark.every_run("18446744073709551615", "-ifma")
@pytest.mark.parametrize("fill", [2**64 - 1, 2**52 - 1, 1 << 63, 1])
def test_moduli_and_bases_whose_limbs_are_extreme(engine, fill):
    n, exponents, powers = extreme_example(fill)
    for base, expected in powers.items():
        assert encrypt(engine, n, base, exponents, [0] * 8, 256) == expected


@each_engine
def test_randomizers_are_powers_of_the_nth_power_of_the_base(engine):
    """With an h that is 1 modulo p every h_n^a is 1 modulo p^2, which hides nothing and shows where s is from."""
    p, q = primes(2048)
    n = p * q
    h = (1 + p * (3 * pow(p, -1, q) % q)) % n  # 1 modulo p, 4 modulo q
    PublicKey(n, h).check()
    parameters = sf.paillier.Parameters(key_bits=2048, max_clients=5, max_weight=3)
    update = np.random.default_rng(1).uniform(-3, 3, 170)
    key = sf.paillier.PublicKey(
        _core.PaillierPublicKey.from_bytes(public_key_frame(parameters, n, base=h), engine)
    )
    twin = PublicKey(n, h)
    frame = sf.paillier.Encryptor(key).encrypt(update).to_bytes()
    steps = [int(step) for step in np.rint(update * STEP)]
    per_ciphertext = parameters.values_per_ciphertext
    residues = [
        int.from_bytes(frame[at - 512 : at], "big") for at in (len(frame) - 4 - 512 * k for k in (2, 1, 0))
    ]
    for place, residue in enumerate(residues):
        packed = pack_fields(steps[place * per_ciphertext :][:per_ciphertext], 24 + 4, n)
        randomizer = twin.add_plaintext(residue, -packed)
        assert randomizer % p**2 == 1
        assert pow(randomizer, q - 1, q**2) == 1
        assert randomizer != 1


def test_the_engine_follows_the_instruction_set():
    expected = "ifma" if _core.instruction_set() == "avx512" else "gmp"
    info = sf.build_info()
    assert info["paillier_engine"] == expected
    assert int(info["gmp_version"].split(".")[0]) >= 6
    p, q = primes(2048)
    frame = public_key_frame(sf.paillier.Parameters(key_bits=2048), p * q)
    assert _core.PaillierPublicKey.from_bytes(frame).engine == expected
    assert _core.PaillierPublicKey.from_bytes(frame, "gmp").engine == "gmp"


@needs_ifma
@pytest.mark.parametrize(
    ("key_bits", "packing"),
    [
        (2048, "dense"),
        (2048, "single"),
        pytest.param(3072, "single", marks=pytest.mark.slow),
        pytest.param(4096, "dense", marks=pytest.mark.slow),
    ],
)
def test_one_engine_opens_what_the_other_encrypted_and_added(key_bits, packing):
    parameters = sf.paillier.Parameters(key_bits=key_bits, packing=packing, max_weight=3)
    authorities = {name: authority_for(parameters, engine=name) for name in ENGINES}
    # As single values nine: one more than the second engine takes at once.
    update = np.random.default_rng(key_bits).uniform(-3, 3, 9)
    totals = []
    encryptors = [sf.paillier.Encryptor(authorities[name].public_key) for name in ENGINES]
    batches = [encryptor.encrypt(update).to_bytes() for encryptor in encryptors]
    for name in ENGINES:
        assert authorities[name].public_key._core.engine == name
        aggregator = sf.paillier.Aggregator(authorities[name].public_key)
        aggregator.add(batches[0], weight=3, clear=np.ones(9))
        aggregator.add(batches[1])
        totals.append(aggregator.total())
    # Adding is exact arithmetic, so the totals are the same bytes.
    assert totals[0].to_bytes() == totals[1].to_bytes()
    expected = (4 * np.rint(update * STEP) + 3 * STEP) / STEP
    for name in ENGINES:
        np.testing.assert_array_equal(authorities[name].open(totals[0]), expected)


@pytest.fixture(scope="module", params=["short-exponent", "classical"])
def authority(request):
    return authority_for(sf.paillier.Parameters(key_bits=2048, packing="single", randomizer=request.param))


def open_sum(authority, *batches):
    return authority.open(total_of(authority.public_key, batches))


def ciphertexts_of(batch):
    """The residues of a batch of single values under a key of 2048 bits."""
    frame = batch.to_bytes()
    count = batch.parsed.present_ciphertexts
    payload = frame[len(frame) - 4 - 512 * count : -4]
    return [payload[512 * i : 512 * (i + 1)] for i in range(count)]


@pytest.mark.parametrize("packing", ["dense", "single"])
def test_how_many_a_batch_takes(packing):
    authority = authority_for(sf.paillier.Parameters(key_bits=2048, packing=packing))
    encryptor = sf.paillier.Encryptor(authority.public_key)
    for count in (0, 1, 67, 68, 69, 136, 200):
        for weight in (None, 1.0):
            update = np.zeros(count) if count else np.zeros(1)
            mask = None if count else sf.Mask.empty(1)
            batch = encryptor.encrypt(update, mask, weight)
            assert encryptor.ciphertexts_for(count, weighted=weight is not None) == batch.parsed.ciphertexts


@pytest.mark.parametrize("lookups_vartime", [None, 0, 1, "False", [], np.True_])
def test_what_is_no_truth_value_gives_up_no_protection(authority, lookups_vartime):
    with pytest.raises(sf.ParameterError, match="True gives up a protection"):
        sf.paillier.Encryptor(authority.public_key, lookups_vartime=lookups_vartime)


@pytest.mark.parametrize("lookups_vartime", [False, True])
def test_encryption_uses_up_what_is_there_and_then_makes_its_own(authority, lookups_vartime):
    encryptor = sf.paillier.Encryptor(authority.public_key, threads=2, lookups_vartime=lookups_vartime)
    assert encryptor.precomputed == 0
    encryptor.precompute(50)
    encryptor.precompute(5)
    encryptor.wait()
    assert encryptor.precomputed == 55
    update = np.linspace(-3, 3, 40)
    batches = [encryptor.encrypt(update)]
    assert encryptor.precomputed == 15
    batches.append(encryptor.encrypt(update))
    assert encryptor.precomputed == 0
    batches.append(encryptor.encrypt(update))
    np.testing.assert_array_equal(open_sum(authority, *batches), 3 * np.rint(update * STEP) / STEP)


def test_many_threads_share_one_pool(authority):
    encryptor = sf.paillier.Encryptor(authority.public_key, threads=1)
    aggregator = sf.paillier.Aggregator(authority.public_key, threads=1)
    update = np.linspace(-2, 2, 7)
    seen = []

    def work():
        for _ in range(4):
            encryptor.precompute(5)
            batch = encryptor.encrypt(update)
            seen.extend(ciphertexts_of(batch))
            aggregator.add(batch)

    on_threads(6, work)
    assert aggregator.clients == 24
    assert len(set(seen)) == len(seen) == 24 * 7
    np.testing.assert_array_equal(authority.open(aggregator.total()) * STEP, 24 * np.rint(update * STEP))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("still_working", [False, True])
def test_a_child_after_fork_has_an_empty_pool_and_randomness_of_its_own(authority, still_working):
    """Both halves of a fork would otherwise hide different updates with the same randomisers."""
    encryptor = sf.paillier.Encryptor(authority.public_key, threads=2)
    encryptor.precompute(40)
    encryptor.wait()
    if still_working:
        encryptor.precompute(200)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - the child
        available = encryptor.precomputed
        encryptor.wait()
        encryptor.precompute(10)
        encryptor.wait()
        frame = encryptor.encrypt(np.zeros(12)).to_bytes()
        os.write(
            writer, available.to_bytes(4, "little") + encryptor.precomputed.to_bytes(4, "little") + frame
        )
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        sent = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert int.from_bytes(sent[:4], "little") == 0
    assert int.from_bytes(sent[4:8], "little") == 0
    encryptor.wait()
    assert encryptor.precomputed == (240 if still_working else 40)
    theirs = sf.paillier.CiphertextBatch.from_bytes(sent[8:])
    ours = [encryptor.encrypt(np.zeros(60)) for _ in range(5)]
    residues = [residue for batch in (theirs, *ours) for residue in ciphertexts_of(batch)]
    assert len(set(residues)) == len(residues) == 312
    np.testing.assert_array_equal(open_sum(authority, theirs), np.zeros(12))


def test_an_encryptor_that_goes_stops_its_threads(authority):
    """It waits for a few products, and for none of the many randomisers that it was asked for."""
    encryptor = sf.paillier.Encryptor(authority.public_key, threads=2)
    encryptor.encrypt(np.zeros(1))  # makes the table
    before = len(os.listdir("/proc/self/task"))
    encryptor.precompute(2**24)
    assert len(os.listdir("/proc/self/task")) > before
    del encryptor
    deadline = time.monotonic() + 60
    while len(os.listdir("/proc/self/task")) > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


EXIT_WHILE_WORKING = """
import sys, threading
import numpy as np
import shieldfl as sf

with open(sys.argv[1], "rb") as file:
    key = sf.paillier.PublicKey.from_bytes(file.read())
encryptors = [sf.paillier.Encryptor(key, threads=2) for _ in range(3)]
if sys.argv[2] == "table":
    encryptors[0].encrypt(np.zeros(1))
for encryptor in encryptors:
    encryptor.precompute(100_000)
waiter = threading.Thread(target=encryptors[0].wait, daemon=True)
waiter.start()
"""


@pytest.mark.parametrize("when", ["table", "no table"])
def test_interpreter_exits_while_pools_are_filled(authority, tmp_path, when):
    """No crash, no hang, nothing on stderr; and nobody waits for what was asked for."""
    (tmp_path / "key").write_bytes(authority.public_key.to_bytes())
    ended = run_python("-c", EXIT_WHILE_WORKING, str(tmp_path / "key"), when)
    assert (ended.returncode, ended.stderr) == (0, "")
