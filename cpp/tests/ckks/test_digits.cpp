#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "ckks/ciphertext.h"
#include "ring/modulus.h"
#include "rlwe/digits.h"
#include "rlwe/packed_digits.h"
#include "tests/check.h"
#include "tests/ckks/ciphertext_digits.h"
#include "tests/ckks/ckks_cases.h"

namespace ckks_digits_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using ring::UInt128;
using tests::Frame;
using tests::numbers_of;

namespace {

const std::vector<ParameterRequest> kRequests = {{Packing::kExact, 64, 20, 12, 2048},
                                                 {Packing::kExact, 1U << 20, 2, 0, 2048},
                                                 {Packing::kExact, 16, 24, 20, 4096},
                                                 {Packing::kSlots, 1, 8, 0, {}},
                                                 {Packing::kSlots, 16, 16, 10, {}}};

using Words = std::vector<std::uint64_t>;

// Sums up to 2^63: small ones, those around multiples of the modulus, and the largest.
Words random_sums(const ParameterFacts& facts, std::mt19937_64& generator) {
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 63;
  Words sums(facts.block_words());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::uint64_t q = facts.primes[i / facts.degree % facts.primes.size()];
    const std::uint64_t multiple = q * (1 + generator() % (kEnd / q));
    switch (generator() % 6) {
      case 0:
        sums[i] = generator() >> (1 + generator() % 63);
        break;
      case 1:
        sums[i] = std::min(multiple - 1, kEnd - 1);
        break;
      case 2:
        sums[i] = std::min(multiple, kEnd - 1);
        break;
      case 3:
        sums[i] = kEnd - 1 - generator() % 3;
        break;
      case 4:
        sums[i] = generator() % 2;
        break;
      default:
        sums[i] = generator() >> 1;
    }
  }
  return sums;
}

void reduce(const ParameterFacts& facts, Words& sums) {
  const rlwe::DigitBasis basis(facts.degree, facts.primes);
  const std::size_t half = sums.size() / 2;
  for (const auto polynomial : {std::span(sums).first(half), std::span(sums).last(half)}) {
    basis.reduce(polynomial);
  }
}

}  // namespace

TEST(sums_of_digits_become_digits_of_the_same_number) {
  std::mt19937_64 generator(141);
  for (const ParameterRequest& request : kRequests) {
    const ParameterFacts facts = Parameters::derive(request)->facts();
    for (int repetition = 0; repetition < 20; ++repetition) {
      const Words sums = random_sums(facts, generator);
      Words digits = sums;
      reduce(facts, digits);
      for (std::size_t i = 0; i < digits.size(); ++i) {
        CHECK(digits[i] < facts.primes[i / facts.degree % facts.primes.size()]);
      }
      CHECK(numbers_of(facts, digits) == numbers_of(facts, sums));
      Words again = digits;
      reduce(facts, again);
      CHECK(again == digits);
    }
  }
}

TEST(digits_on_the_wire_are_the_number_that_the_residues_have) {
  std::mt19937_64 generator(142);
  for (const ParameterRequest& request : kRequests) {
    const auto parameters = Parameters::derive(request);
    const ParameterFacts& facts = parameters->facts();
    Words residues(facts.block_words());
    for (std::size_t i = 0; i < residues.size(); ++i) {
      residues[i] = generator() % facts.primes[i / facts.degree % facts.primes.size()];
    }
    const Layout layout{facts.id(), {}, 0, {}, 1, false};
    const Id id = {1};
    FrameWriter writer = begin_frame(FrameKind::kCkksTotal, facts, layout, {&id, 1});
    Words digits = residues;
    rlwe::pack_residues(parameters->digits(), parameters->facts().format(FrameKind::kCkksTotal), digits,
                        writer.reserve(facts.format(FrameKind::kCkksTotal).bytes()));
    const Frame frame = writer.finish();
    // The residues of the number are those that went in, and they come back.
    const std::vector<UInt128> numbers = numbers_of(facts, digits);
    for (std::size_t word = 0; word < digits.size(); ++word) {
      const std::size_t row = word / facts.degree;
      const std::size_t prime = row % facts.primes.size();
      const std::size_t half = row / facts.primes.size();
      CHECK(numbers[half * facts.degree + word % facts.degree] % facts.primes[prime] == residues[word]);
      CHECK(digits[word] < facts.primes[prime]);
    }
    const CiphertextView total = CiphertextView::parse(frame, FrameKind::kCkksTotal);
    CHECK(tests::residues_of(total, 0) == residues);
    // Packing digits is packing residues without the conversion.
    Frame packed(facts.format(FrameKind::kCkksTotal).bytes());
    facts.format(FrameKind::kCkksTotal).pack(digits, packed);
    CHECK(std::equal(packed.begin(), packed.end(), total.payload.begin(), total.payload.end()));
  }
}

TEST(a_batch_is_read_to_within_half_of_what_is_dropped) {
  std::mt19937_64 generator(143);
  for (const ParameterRequest& request : kRequests) {
    const auto parameters = Parameters::derive(request);
    const ParameterFacts& facts = parameters->facts();
    const UInt128 modulus = tests::modulus_of(facts);
    Words residues(facts.block_words());
    for (std::size_t i = 0; i < residues.size(); ++i) {
      const std::uint64_t q = facts.primes[i / facts.degree % facts.primes.size()];
      // Also the largest one, above which the middle of what is dropped lies.
      residues[i] = i % 3 == 0 ? q - 1 - generator() % 2 : generator() % q;
    }
    const Layout layout{facts.id(), {}, 0, {}, 1, false};
    const Id id = {1};
    FrameWriter writer = begin_frame(FrameKind::kCkksBatch, facts, layout, {&id, 1});
    Words digits = residues;
    rlwe::pack_residues(parameters->digits(), parameters->facts().format(FrameKind::kCkksBatch), digits,
                        writer.reserve(facts.format(FrameKind::kCkksBatch).bytes()));
    const Frame frame = writer.finish();
    Words read = tests::residues_of(CiphertextView::parse(frame, FrameKind::kCkksBatch), 0);
    for (std::size_t i = 0; i < read.size(); ++i) {
      CHECK(read[i] < facts.primes[i / facts.degree % facts.primes.size()]);
    }
    // As digits: a pass through packing.
    Frame scratch(facts.format(FrameKind::kCkksTotal).bytes());
    rlwe::pack_residues(parameters->digits(), parameters->facts().format(FrameKind::kCkksTotal), read,
                        scratch);
    const std::vector<UInt128> sent = numbers_of(facts, digits);
    const std::vector<UInt128> got = numbers_of(facts, read);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const std::size_t half = i / facts.degree;
      const unsigned dropped = half == 0 ? facts.dropped_bits0 : facts.dropped_bits1;
      const std::uint64_t digit0 = digits[half * digits.size() / 2 + i % facts.degree];
      const std::uint64_t low = digit0 & ((std::uint64_t{1} << dropped) - 1);
      const std::uint64_t middle = dropped == 0 ? 0 : std::uint64_t{1} << (dropped - 1);
      CHECK(got[i] == (sent[i] + modulus - low + middle) % modulus);
    }
  }
}

}  // namespace ckks_digits_tests
