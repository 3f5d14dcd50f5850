#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/digest.h"
#include "tests/check.h"
#include "tests/ckks/ckks_cases.h"
#include "tests/mask/mask_cases.h"

namespace ckks_encryptor_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using tests::Frame;
using tests::key_pair;
using tests::Values;

namespace {

const ParameterRequest kOnePrime = {Packing::kExact, 64, 24, 20, {}};
const ParameterRequest kTwoPrimes = {Packing::kExact, 16, 24, 20, 4096};
const ParameterRequest kSlots = {Packing::kSlots, 16, 16, 10, {}};

std::string hex(const Id& id) {
  std::string text;
  for (const std::uint8_t byte : id) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace

TEST(an_encryptor_tells_the_length_of_its_frames) {
  std::mt19937_64 generator(171);
  SystemSeedSource seeds;
  for (const ParameterRequest& request : {kOnePrime, kTwoPrimes, kSlots}) {
    const KeyPair& keys = key_pair(request);
    const ParameterFacts& facts = tests::facts_of(keys);
    const Encryptor encryptor(keys.public_key);
    const std::size_t block = facts.values_per_block();
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, block - 1, block, block + 1, 2 * block}) {
      const mask::Bitset mask = mask::Bitset::from_bools(tests::random_bools(size, 0.6, generator));
      for (const mask::Bitset* chosen : {static_cast<const mask::Bitset*>(nullptr), &mask}) {
        for (const bool weighted : {false, true}) {
          const std::uint64_t count = (chosen == nullptr ? size : chosen->count()) + (weighted ? 1 : 0);
          const std::size_t blocks = (count + block - 1) / block;
          const std::size_t bytes = tests::FrameOffsets(facts).payload(1) + kFrameTrailerBytes +
                                    blocks * facts.format(FrameKind::kCkksBatch).bytes();
          CHECK(encryptor.frame_bytes(size, chosen, weighted) == bytes);
          EncryptOptions options;
          if (weighted) options.weight = 1.0;
          const Frame frame = tests::encrypt(keys, Values(size, 0.25), seeds, options, chosen);
          const CiphertextView view = CiphertextView::parse(frame, FrameKind::kCkksBatch);
          CHECK(view.layout.field_count() == count && view.layout.weighted == weighted);
          CHECK(view.layout.mask_id == scheme::mask_id(size, chosen));
        }
      }
      CHECK_THROWS(encryptor.frame_bytes(size + 1, &mask, false), ErrorCode::kParameter);
    }
  }
}

TEST(frames_fill_the_memory_that_they_are_given_and_no_more) {
  const KeyPair& keys = key_pair(kOnePrime);
  const Encryptor encryptor(keys.public_key);
  const Values values(3000, 0.5);
  const std::size_t bytes = encryptor.frame_bytes(values.size(), nullptr, false);
  InsecureTestRandom seeds(1);
  InsecureTestRandom same_seeds(1);
  Frame memory(bytes + 2, 0xee);
  encryptor.encrypt(scheme::ValuePieces<double>(values), nullptr, {}, seeds,
                    std::span(memory).subspan(1, bytes));
  CHECK(memory.front() == 0xee && memory.back() == 0xee);
  CHECK(Frame(memory.begin() + 1, memory.end() - 1) == tests::encrypt(keys, values, same_seeds));
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{1}, bytes - 1, bytes + 1}) {
    Frame other(wrong, 0xee);
    CHECK_THROWS(encryptor.encrypt(scheme::ValuePieces<double>(values), nullptr, {}, seeds, other),
                 ErrorCode::kInternal);
    CHECK(other == Frame(wrong, 0xee));
  }
}

TEST(frames_are_the_same_with_every_instruction_set) {
  // These tests run once for each set: what they all have to give is written down here, for fixed seeds. It
  // changes with the wire format, the derivation of parameters, and the samplers, and with nothing else.
  struct Expected {
    ParameterRequest request;
    const char* batch;
    const char* total;
    const char* sums;
  };
  // The sums are those of the same integers under both parameters.
  constexpr const char* kSums = "a34460eba90c0b6635c0b4601f930bb1";
  const Expected all[] = {
      {kOnePrime, "425701701f3d3dec402c87c48b0c8915", "02c87b08ece607a5e36ee31efe1f357e", kSums},
      {kTwoPrimes, "be6fe822acfd481fc9ad9e345e9e9ef5", "5ccf366cfe4a3ed4f61a4a7b70bb926b", kSums}};
  for (const Expected& expected : all) {
    std::mt19937_64 generator(172);
    const KeyPair& keys = key_pair(expected.request);
    std::vector<float> floats(30'000);
    Values doubles(floats.size());
    for (std::size_t i = 0; i < floats.size(); ++i) {
      floats[i] = static_cast<float>(static_cast<std::int32_t>(generator() >> 32)) * 0x1p-29F;
      doubles[i] = static_cast<double>(static_cast<std::int64_t>(generator())) * 0x1p-61;
    }
    std::vector<std::uint8_t> bools(floats.size());
    for (std::uint8_t& chosen : bools) chosen = generator() % 10 < 7 ? 1 : 0;
    const mask::Bitset mask = mask::Bitset::from_bools(bools);
    InsecureTestRandom seeds(172);
    EncryptOptions options;
    options.clip = true;
    options.weight = 0.75;
    const tests::EncryptedBatch batch = tests::encrypt_batch(keys, floats, seeds, options, &mask);
    const Frame total =
        tests::total_of(keys, {batch.frame, tests::encrypt(keys, doubles, seeds, options, &mask)});
    const Values sums = tests::open(keys, total).values;
    CHECK(hex(digest(batch.frame)) == expected.batch);
    CHECK(hex(digest(total)) == expected.total);
    CHECK(hex(digest({reinterpret_cast<const std::uint8_t*>(sums.data()), 8 * sums.size()})) ==
          expected.sums);
  }
}

}  // namespace ckks_encryptor_tests
