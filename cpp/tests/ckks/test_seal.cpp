// Ciphertexts against arithmetic that is not ours: the definition, and SEAL's own encryption and decryption.
#include <seal/seal.h>
#include <seal/util/ntt.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "ring/modulus.h"
#include "rlwe/packed_digits.h"
#include "tests/check.h"
#include "tests/ckks/ckks_cases.h"

namespace ckks_seal_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using ring::UInt128;
using tests::Frame;
using tests::key_pair;
using tests::Values;

namespace {

using Words = std::vector<std::uint64_t>;

// SEAL reserves the last of several primes for key switching; with one prime, keys and data share a level.
const ParameterRequest kOnePrime = {Packing::kExact, 5, 20, 12, 2048};
const ParameterRequest kTwoPrimes = {Packing::kExact, 5, 24, 12, 4096};

// The secret as residues modulo q.
Words secret_residues(const KeyPair& keys, std::uint64_t q) {
  const auto exported = keys.secret_key->export_secret();
  Words residues(tests::facts_of(keys).degree);
  for (std::size_t i = 0; i < residues.size(); ++i) {
    residues[i] = ring::residue(static_cast<std::int8_t>(exported[i]), q);
  }
  return residues;
}

struct Seal {
  explicit Seal(const ParameterFacts& facts)
      : context(parameters(facts), true, seal::sec_level_type::tc128),
        tables(std::countr_zero(facts.degree), seal::Modulus(facts.primes[0])) {}

  static seal::EncryptionParameters parameters(const ParameterFacts& facts) {
    seal::EncryptionParameters parameters(seal::scheme_type::ckks);
    parameters.set_poly_modulus_degree(facts.degree);
    parameters.set_coeff_modulus({facts.primes.begin(), facts.primes.end()});
    return parameters;
  }

  void forward(std::uint64_t* row) const {
    seal::util::ntt_negacyclic_harvey(seal::util::CoeffIter(row), tables);
  }
  void inverse(std::uint64_t* row) const {
    seal::util::inverse_ntt_negacyclic_harvey(seal::util::CoeffIter(row), tables);
  }

  seal::SEALContext context;
  seal::util::NTTTables tables;
};

}  // namespace

TEST(decryption_is_c0_plus_c1_times_s) {
  std::mt19937_64 generator(101);
  SystemSeedSource seeds;
  for (const ParameterRequest& request : {kOnePrime, kTwoPrimes}) {
    const KeyPair& keys = key_pair(request);
    const ParameterFacts& facts = tests::facts_of(keys);
    const Values values = tests::random_values(*keys.public_key->parameters(), 700, generator);
    const Frame frame = tests::total_of(keys, {tests::encrypt(keys, values, seeds)});
    const CiphertextView total = CiphertextView::parse(frame, FrameKind::kCkksTotal);
    const Words ciphertext = tests::residues_of(total, 0);
    const Words rows = tests::decrypted(keys, total, 0);
    const std::size_t degree = facts.degree;
    const std::size_t primes = facts.primes.size();
    for (std::size_t p = 0; p < primes; ++p) {
      const std::uint64_t q = facts.primes[p];
      const Words s = secret_residues(keys, q);
      const std::uint64_t* c0 = ciphertext.data() + p * degree;
      const std::uint64_t* c1 = ciphertext.data() + (primes + p) * degree;
      for (std::size_t k = 0; k < degree; ++k) {
        UInt128 sum = c0[k];  // at most 4096 terms below 2^100
        for (std::size_t i = 0; i < degree; ++i) {
          const std::uint64_t factor = i <= k ? s[k - i] : (q - s[degree + k - i]) % q;
          sum += static_cast<UInt128>(c1[i]) * factor;
        }
        CHECK(rows[p * degree + k] == static_cast<std::uint64_t>(sum % q));
      }
    }
  }
}

TEST(seal_decrypts_what_is_encrypted_here) {
  std::mt19937_64 generator(102);
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(kOnePrime);
  const ParameterFacts& facts = tests::facts_of(keys);
  const std::size_t degree = facts.degree;
  const Seal seal_side(facts);

  Words s = secret_residues(keys, facts.primes[0]);
  seal_side.forward(s.data());
  seal::SecretKey secret;
  secret.data().resize(degree);
  std::copy(s.begin(), s.end(), secret.data().data());
  secret.parms_id() = seal_side.context.key_parms_id();
  seal::Decryptor decryptor(seal_side.context, secret);

  const Values values = tests::random_values(*keys.public_key->parameters(), 2 * degree, generator);
  const Frame frame = tests::total_of(keys, {tests::encrypt(keys, values, seeds)});
  const CiphertextView total = CiphertextView::parse(frame, FrameKind::kCkksTotal);
  for (std::size_t block = 0; block < 2; ++block) {
    Words ciphertext = tests::residues_of(total, block);
    seal::Ciphertext theirs;
    theirs.resize(seal_side.context, 2);
    for (std::size_t half = 0; half < 2; ++half) {
      seal_side.forward(ciphertext.data() + half * degree);
      std::copy_n(ciphertext.data() + half * degree, degree, theirs.data(half));
    }
    theirs.is_ntt_form() = true;
    seal::Plaintext plain;
    decryptor.decrypt(theirs, plain);
    seal_side.inverse(plain.data());
    const Words rows = tests::decrypted(keys, total, block);
    for (std::size_t i = 0; i < degree; ++i) {
      CHECK(plain[i] == rows[i]);
      const std::int64_t noise = ring::centered(plain[i], facts.primes[0]) -
                                 (tests::fixed_point(facts, values[block * degree + i]) << facts.log2_scale);
      CHECK(std::fabs(static_cast<double>(noise)) < error_bound(degree, 1, facts.dropped_bits()));
    }
  }
}

TEST(what_seal_encrypts_is_summed_and_opened_here) {
  std::mt19937_64 generator(103);
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(kOnePrime);
  const ParameterFacts& facts = tests::facts_of(keys);
  const std::size_t degree = facts.degree;
  const Seal seal_side(facts);

  seal::PublicKey key;
  key.data().resize(seal_side.context, seal_side.context.key_parms_id(), 2);
  std::copy_n(keys.public_key->rows0().begin(), degree, key.data().data(0));
  std::copy_n(keys.public_key->rows1().begin(), degree, key.data().data(1));
  key.data().is_ntt_form() = true;
  key.parms_id() = seal_side.context.key_parms_id();
  seal::Encryptor encryptor(seal_side.context, key);

  std::vector<Frame> batches;
  std::vector<std::int64_t> expected(degree, 0);
  for (int client = 0; client < 3; ++client) {
    const Values values = tests::random_values(*keys.public_key->parameters(), degree, generator);
    seal::Plaintext plain;
    plain.resize(degree);
    for (std::size_t i = 0; i < degree; ++i) {
      const std::int64_t value = tests::fixed_point(facts, values[i]);
      expected[i] += value;
      plain[i] = ring::residue(value << facts.log2_scale, facts.primes[0]);
    }
    seal_side.forward(plain.data());
    plain.parms_id() = seal_side.context.first_parms_id();
    seal::Ciphertext theirs;
    encryptor.encrypt(plain, theirs);
    for (std::size_t half = 0; half < 2; ++half) seal_side.inverse(theirs.data(half));

    const Id frame_id = random_id(seeds);
    const Layout layout{facts.id(), keys.public_key->id(), 0, scheme::mask_id(degree, nullptr), degree,
                        false};
    FrameWriter writer = begin_frame(FrameKind::kCkksBatch, facts, layout, {&frame_id, 1});
    rlwe::pack_residues(keys.public_key->parameters()->digits(),
                        keys.public_key->parameters()->facts().format(FrameKind::kCkksBatch),
                        {theirs.data(0), 2 * degree},
                        writer.reserve(facts.format(FrameKind::kCkksBatch).bytes()));
    batches.push_back(writer.finish());
  }
  const Values ours = tests::random_values(*keys.public_key->parameters(), degree, generator);
  batches.push_back(tests::encrypt(keys, ours, seeds));
  const auto opened = tests::open(keys, tests::total_of(keys, batches));
  for (std::size_t i = 0; i < degree; ++i) {
    CHECK(opened.values[i] ==
          tests::from_fixed_point(facts, expected[i] + tests::fixed_point(facts, ours[i])));
  }
}

}  // namespace ckks_seal_tests
