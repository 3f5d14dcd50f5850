#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "paillier/ciphertext.h"
#include "paillier/decryptor.h"
#include "paillier/packing.h"
#include "tests/altered_frames.h"
#include "tests/check.h"
#include "tests/paillier/paillier_cases.h"

namespace paillier_decryptor_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using tests::Frame;
using tests::key_pair;

namespace {

using Integers = std::vector<std::int64_t>;

const Parameters kDense({.key_bits = 2048, .max_clients = 5, .max_weight = 10});
const Parameters kSingle({.key_bits = 2048, .packing = Packing::kSingle, .max_clients = 5});

struct TotalOf {
  std::uint64_t value_count = 0;
  bool weighted = false;
  std::uint32_t clients = 1;
  std::uint64_t total_weight = 1;
  FrameKind kind = FrameKind::kPaillierTotal;
};

// A frame of these ciphertexts.
Frame frame_of(const PublicKey& key, const std::vector<BigInteger>& ciphertexts, const TotalOf& total) {
  const Parameters& parameters = key.parameters();
  const Layout layout{parameters.id(), key.id(), 7, {}, total.value_count, total.weighted};
  std::vector<Id> ids(total.clients);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i].fill(static_cast<std::uint8_t>(i));
  Frame frame(ciphertext_frame_bytes(parameters, layout, ids.size(), nullptr));
  FrameWriter writer =
      begin_frame(total.kind, parameters, layout, ids, total.total_weight, nullptr, false, frame);
  for (const BigInteger& ciphertext : ciphertexts) {
    writer.put_bytes(tests::to_bytes(ciphertext, parameters.ciphertext_bytes()));
  }
  (void)writer.finish();
  return frame;
}

// The fields in as many ciphertexts as they take, encrypted by the book.
std::vector<BigInteger> encrypted(const PublicKey& key, std::span<const std::int64_t> fields) {
  std::vector<BigInteger> plaintexts;
  std::vector<std::uint64_t> plaintext(key.parameters().modulus_words());
  while (!fields.empty()) {
    const auto here = fields.first(std::min(fields.size(), key.parameters().values_per_ciphertext()));
    pack_values(key.parameters(), here, key.modulus(), plaintext);
    plaintexts.push_back(BigInteger::from_words(plaintext));
    fields = fields.subspan(here.size());
  }
  RandomStream random(InsecureTestRandom(1000003).next(), 0);
  return tests::ciphertexts_of(key, plaintexts, random);
}

OpenedSums open(const KeyPair& pair, const Frame& frame, std::size_t threads = 2,
                FrameKind kind = FrameKind::kPaillierTotal) {
  return Decryptor(pair.public_key, pair.secret_key).open(CiphertextView::parse(frame, kind), threads);
}

Frame total_frame(const KeyPair& pair, const Integers& fields, TotalOf total = {}) {
  total.value_count = fields.size() - (total.weighted ? 1 : 0);
  return frame_of(*pair.public_key, encrypted(*pair.public_key, fields), total);
}

Integers random_fields(const Parameters& parameters, std::size_t count, std::int64_t weight,
                       std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  const std::int64_t limit = parameters.max_magnitude() * weight;
  std::uniform_int_distribution<std::int64_t> distribution(-limit, limit);
  Integers fields(count);
  for (std::int64_t& field : fields) field = distribution(generator);
  return fields;
}

void check_values(const OpenedSums& opened, std::span<const std::int64_t> expected) {
  CHECK(opened.values.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(opened.values[i] == std::ldexp(static_cast<double>(expected[i]), -20));
  }
}

void check_refused(const KeyPair& pair, const Frame& frame, ErrorCode code) {
  CHECK_THROWS(open(pair, frame), code);
}

}  // namespace

TEST(totals_made_by_the_book_open) {
  std::vector<Parameters> tried = {kDense, kSingle};
  if (tests::all_are_tried()) tried.emplace_back(ParameterFacts{.key_bits = 3072});
  for (const Parameters& parameters : tried) {
    for (const EngineKind engine : tests::available_engines()) {
      const KeyPair& pair = key_pair(parameters, engine);
      const std::size_t capacity = parameters.values_per_ciphertext();
      for (const std::size_t count : {std::size_t{1}, capacity, capacity + 1, 9 * capacity + capacity / 2}) {
        const Integers fields = random_fields(parameters, count, 3, count);
        const Frame frame = total_frame(pair, fields, {.clients = 3, .total_weight = 3});
        for (const std::size_t threads : {1U, 2U, 5U}) check_values(open(pair, frame, threads), fields);
      }
    }
  }
}

TEST(a_total_of_nothing_opens) {
  const KeyPair& pair = key_pair(kDense);
  const OpenedSums opened = open(pair, frame_of(*pair.public_key, {}, {.value_count = 0}));
  CHECK(opened.values.empty() && !opened.weight_sum);
}

TEST(weights_are_read_behind_the_values) {
  for (const Parameters& parameters : {kDense, kSingle}) {
    const KeyPair& pair = key_pair(parameters);
    const std::size_t capacity = parameters.values_per_ciphertext();
    for (const std::size_t count : {std::size_t{1}, std::size_t{2}, capacity, capacity + 1, capacity + 2}) {
      const Integers fields = random_fields(parameters, count, 1, count);
      const OpenedSums opened = open(pair, total_frame(pair, fields, {.weighted = true}));
      check_values(opened, std::span(fields).first(count - 1));
      CHECK(opened.weight_sum == std::ldexp(static_cast<double>(fields.back()), -20));
    }
  }
  const Integers fields = {5};
  CHECK(!open(key_pair(kDense), total_frame(key_pair(kDense), fields)).weight_sum);
}

TEST(sums_at_the_ends_of_the_range_open_and_those_beyond_do_not) {
  for (const Parameters& parameters : {kDense, kSingle}) {
    const KeyPair& pair = key_pair(parameters);
    const std::size_t count = 2 * parameters.values_per_ciphertext() + 1;
    for (const std::uint32_t weight : {1U, 5U}) {
      const TotalOf total{.clients = weight, .total_weight = weight};
      const std::int64_t limit = parameters.max_magnitude() * weight;
      for (const std::int64_t extreme : {limit, -limit}) {
        const Integers fields(count, extreme);
        check_values(open(pair, total_frame(pair, fields, total)), fields);
        for (const std::size_t place : {std::size_t{0}, count / 2, count - 1}) {
          Integers beyond = fields;
          beyond[place] += extreme > 0 ? 1 : -1;
          check_refused(pair, total_frame(pair, beyond, total), ErrorCode::kWireFormat);
        }
      }
    }
  }
  // What counts is the sum of weights, not the number of clients.
  const KeyPair& pair = key_pair(kDense);
  const Integers fields(3, kDense.max_magnitude() * 50);
  check_values(open(pair, total_frame(pair, fields, {.clients = 5, .total_weight = 50})), fields);
  check_refused(pair, total_frame(pair, fields, {.clients = 5, .total_weight = 49}), ErrorCode::kWireFormat);
}

TEST(totals_of_something_else_are_refused) {
  const KeyPair& pair = key_pair(kDense);
  const PublicKey& key = *pair.public_key;
  const BigInteger n = tests::modulus_of(key);
  const BigInteger good = tests::ciphertext_of(key, BigInteger(0), BigInteger(3));
  const auto exported = pair.secret_key->export_secret();
  const BigInteger p = tests::from_bytes(std::span(exported).first(exported.size() / 2));
  const TotalOf one_value{.value_count = 1};
  check_values(open(pair, frame_of(key, {good}, one_value)), Integers{0});
  for (const BigInteger& residue : {BigInteger(0), n, p, p * p, n * n, n * n + BigInteger(1), n * n - n,
                                    tests::ciphertext_of(key, n / BigInteger(2), BigInteger(3))}) {
    check_refused(pair, frame_of(key, {residue}, one_value), ErrorCode::kWireFormat);
  }
  // A value behind the last one.
  const Integers fields = {1, 2};
  check_refused(pair, frame_of(key, encrypted(key, fields), one_value), ErrorCode::kWireFormat);
}

// The key's own decryption, but for the plaintext number `place` of all that are decrypted, which becomes
// right modulo q alone: what a fault in the half modulo p does.
Decrypt faulty_decryption(const KeyPair& pair, std::size_t place) {
  return [&pair, place, first = std::size_t{0}](std::span<const std::uint64_t> residues,
                                                std::span<std::uint64_t> plaintexts) mutable {
    pair.secret_key->decrypt(residues, plaintexts);
    const std::size_t words = pair.public_key->parameters().modulus_words();
    const std::size_t count = plaintexts.size() / words;
    if (place >= first && place < first + count) {
      const auto plaintext = plaintexts.subspan((place - first) * words, words);
      const auto exported = pair.secret_key->export_secret();
      const BigInteger q = tests::from_bytes(std::span(exported).last(exported.size() / 2));
      const BigInteger wrong = (BigInteger::from_words(plaintext) + q) % tests::modulus_of(*pair.public_key);
      std::ranges::copy(wrong.to_words(words), plaintext.begin());
    }
    first += count;
  };
}

TEST(a_fault_in_any_opening_or_in_the_check_itself_withholds_the_sums) {
  for (const EngineKind engine : tests::available_engines()) {
    const KeyPair& pair = key_pair(kSingle, engine);
    const std::size_t blocks = 19;
    const Frame frame = total_frame(pair, random_fields(kSingle, blocks, 1, 8));
    const auto view = CiphertextView::parse(frame, FrameKind::kPaillierTotal);
    // Behind the 19 openings come those of the check.
    const std::size_t checks = engine == EngineKind::kIfma ? 8 : 1;
    for (std::size_t place = 0; place < blocks + checks; ++place) {
      CHECK_THROWS(open_total(*pair.public_key, view, faulty_decryption(pair, place), 1),
                   ErrorCode::kInternal);
    }
    const std::size_t none = blocks + checks;
    CHECK(open_total(*pair.public_key, view, faulty_decryption(pair, none), 1).values ==
          open(pair, frame).values);
  }
}

TEST(a_key_that_opens_everything_wrongly_in_the_same_way_is_noticed) {
  // Linear, as a damaged constant of the recombination makes it: each plaintext twice.
  const KeyPair& pair = key_pair(kSingle);
  const Frame frame = total_frame(pair, {1, 2, 3});
  const auto doubled = [&](std::span<const std::uint64_t> residues, std::span<std::uint64_t> plaintexts) {
    pair.secret_key->decrypt(residues, plaintexts);
    const std::size_t words = kSingle.modulus_words();
    for (; !plaintexts.empty(); plaintexts = plaintexts.subspan(words)) {
      const BigInteger number = BigInteger::from_words(plaintexts.first(words));
      const BigInteger wrong = (number + number) % tests::modulus_of(*pair.public_key);
      std::ranges::copy(wrong.to_words(words), plaintexts.begin());
    }
  };
  CHECK_THROWS(
      open_total(*pair.public_key, CiphertextView::parse(frame, FrameKind::kPaillierTotal), doubled, 1),
      ErrorCode::kInternal);
}

TEST(batches_and_foreign_totals_are_refused) {
  const KeyPair& pair = key_pair(kDense);
  const Integers fields = {1, 2, 3};
  const auto ciphertexts = encrypted(*pair.public_key, fields);
  const Frame batch =
      frame_of(*pair.public_key, ciphertexts, {.value_count = 3, .kind = FrameKind::kPaillierBatch});
  CHECK_THROWS(open(pair, batch, 1, FrameKind::kPaillierBatch), ErrorCode::kPolicy);
  const Parameters other({.key_bits = 2048, .fraction_bits = 19, .max_clients = 5, .max_weight = 10});
  check_refused(key_pair(other), total_frame(pair, fields), ErrorCode::kParameter);
  InsecureTestRandom seeds(31);
  const KeyPair same_factors =
      key_pair_of(kDense, tests::insecure_factors(2048), seeds, pair.public_key->engine().kind());
  check_refused(same_factors, total_frame(pair, fields), ErrorCode::kKeyMismatch);
  CHECK_THROWS(Decryptor(pair.public_key, same_factors.secret_key), ErrorCode::kKeyMismatch);
}

}  // namespace paillier_decryptor_tests
