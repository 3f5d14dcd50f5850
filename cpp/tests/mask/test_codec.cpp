#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "common/crc32c.h"
#include "common/wire.h"
#include "mask/bitset.h"
#include "mask/mask_codec.h"
#include "mask/rice_code.h"
#include "mask/words.h"
#include "tests/check.h"
#include "tests/mask/mask_cases.h"

namespace mask_codec_tests {

using namespace shieldfl;
using namespace shieldfl::mask;
using tests::kDensities;
using tests::kSizes;
using tests::random_bools;
using Bytes = std::vector<std::uint8_t>;

namespace {

constexpr std::size_t kPayload = kFrameHeaderBytes + 18;

Bitset random_mask(std::size_t size, double density, std::mt19937_64& generator) {
  return Bitset::from_bools(random_bools(size, density, generator));
}

// Makes the checksum fit again, so that the checks behind it are reached.
Bytes resealed(Bytes frame) {
  const std::size_t covered = frame.size() - kFrameTrailerBytes;
  const std::uint32_t checksum = crc32c(std::span(frame).first(covered));
  std::memcpy(frame.data() + covered, &checksum, sizeof checksum);
  return frame;
}

template <typename T>
Bytes with_field(Bytes frame, std::size_t offset, T value) {
  std::memcpy(frame.data() + offset, &value, sizeof value);
  return resealed(std::move(frame));
}

// A frame around any body, as an attacker would make it.
Bytes frame_of(std::uint64_t size, std::uint64_t count, MaskEncoding encoding, unsigned log2_divisor,
               const Bytes& payload) {
  FrameWriter writer({FrameKind::kMask, {}, {}}, 18 + payload.size());
  writer.put(size);
  writer.put(count);
  writer.put(static_cast<std::uint8_t>(encoding));
  writer.put(static_cast<std::uint8_t>(log2_divisor));
  writer.put_bytes(payload);
  return writer.finish();
}

// Decoding either fails as a wire-format error or gives a mask whose one frame these bytes are.
bool accepted(const Bytes& frame) {
  try {
    const Bitset mask = decode_mask(frame);
    CHECK(encode_mask(mask) == frame);
    return true;
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kWireFormat);
    return false;
  }
}

double entropy_bytes(double size, double density) {
  return size * -(density * std::log2(density) + (1 - density) * std::log2(1 - density)) / 8;
}

}  // namespace

TEST(mask_frames_round_trip) {
  std::mt19937_64 generator(11);
  for (const std::size_t size : kSizes) {
    for (const double density : kDensities) {
      const Bitset mask = random_mask(size, density, generator);
      const Bytes frame = encode_mask(mask);
      CHECK(decode_mask(frame) == mask);
      CHECK(decode_mask(frame, size) == mask);
      CHECK_THROWS(decode_mask(frame, size + 1), ErrorCode::kWireFormat);
      CHECK(frame.size() <= kPayload + (size + 7) / 8 + kFrameTrailerBytes);
      const MaskInfo info = inspect_mask(frame);
      CHECK(info.size == size && info.count == mask.count());
      CHECK(kPayload + info.payload_bytes + kFrameTrailerBytes == frame.size());
    }
  }
}

TEST(mask_frames_round_trip_with_every_gap) {
  // Two positions that far apart, with the first anywhere in its word: quotients of every length, and codes
  // that start at any bit of a byte.
  for (std::uint64_t gap = 1; gap < 2000; ++gap) {
    const auto first = static_cast<std::int64_t>(gap % 67);
    const std::vector<std::int64_t> pair = {first, first + static_cast<std::int64_t>(gap)};
    const Bitset mask = Bitset::from_indices(pair, 5000);
    CHECK(decode_mask(encode_mask(mask)) == mask);
    CHECK(decode_mask(encode_mask(~mask)) == ~mask);
  }
}

TEST(mask_frames_round_trip_when_clustered) {
  // Dense and empty stretches: gaps far from the ones that the divisor is chosen for.
  for (const std::uint64_t size : {1'000UL, 70'001UL}) {
    for (const std::uint64_t length : {1UL, 60UL, 300UL}) {
      for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{333}, size - length}) {
        std::vector<std::int64_t> run;
        for (std::uint64_t i = 0; i < length; ++i) run.push_back(static_cast<std::int64_t>(begin + i));
        const Bitset mask = Bitset::from_indices(run, size);
        CHECK(decode_mask(encode_mask(mask)) == mask);
        CHECK(decode_mask(encode_mask(~mask)) == ~mask);
      }
    }
  }
}

TEST(mask_frames_of_the_largest_size_are_small_when_sparse) {
  const std::vector<std::int64_t> ends = {0, static_cast<std::int64_t>(kMaxPositions) - 1};
  const Bitset mask = Bitset::from_indices(ends, kMaxPositions);
  const Bytes frame = encode_mask(mask);
  CHECK(frame.size() < 100);
  CHECK(decode_mask(frame, kMaxPositions) == mask);
}

TEST(mask_encoding_follows_density) {
  std::mt19937_64 generator(12);
  CHECK(inspect_mask(encode_mask(random_mask(10'000, 0.02, generator))).encoding == MaskEncoding::kRice);
  CHECK(inspect_mask(encode_mask(random_mask(10'000, 0.5, generator))).encoding == MaskEncoding::kBitmap);
  CHECK(inspect_mask(encode_mask(random_mask(10'000, 0.98, generator))).encoding ==
        MaskEncoding::kRiceComplement);
  CHECK(inspect_mask(encode_mask(Bitset(10'000))).payload_bytes == 0);
  CHECK(inspect_mask(encode_mask(Bitset::full(10'000))).payload_bytes == 0);
}

TEST(rice_divisor_has_the_smallest_bound) {
  std::mt19937_64 generator(13);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    const std::uint64_t size = 1 + generator() % kMaxPositions;
    const std::uint64_t count = (1 + generator() % size) >> (generator() % 31);
    const std::uint64_t chosen = rice_bits_bound(size, count, rice_log2_divisor(size, count));
    for (unsigned k = 0; k <= kMaxLog2Divisor; ++k) CHECK(chosen <= rice_bits_bound(size, count, k));
  }
}

TEST(rice_code_stays_within_its_bound_for_every_divisor) {
  std::mt19937_64 generator(14);
  for (const double density : kDensities) {
    const Bitset mask = random_mask(4099, density, generator);
    for (unsigned k = 0; k <= kMaxLog2Divisor; ++k) {
      const RiceCode code = rice_encode(mask.words(), mask.size(), mask.count(), false, k);
      CHECK(code.bytes <= (rice_bits_bound(mask.size(), mask.count(), k) + 7) / 8);
      WordVector words(words_for(mask.size()), 0);
      rice_decode({reinterpret_cast<const std::uint8_t*>(code.words.data()), code.bytes}, mask.size(),
                  mask.count(), k, words);
      CHECK(Bitset::from_words(words, mask.size()) == mask);
    }
  }
}

TEST(random_masks_are_near_their_entropy) {
  std::mt19937_64 generator(15);
  constexpr std::size_t kSize = 1'000'000;
  for (const double density : {0.01, 0.1}) {
    for (const double share : {density, 1 - density}) {
      const Bytes frame = encode_mask(random_mask(kSize, share, generator));
      const double ratio = static_cast<double>(frame.size()) / entropy_bytes(kSize, share);
      std::printf("      mask frame over entropy at density %.2f: %.4f\n", share, ratio);
      CHECK(ratio <= 1.05);
    }
  }
  for (int percent = 1; percent < 100; ++percent) {  // the bound that mask_codec.h states
    const double density = percent / 100.0;
    const Bytes frame = encode_mask(random_mask(kSize, density, generator));
    CHECK(static_cast<double>(frame.size()) <= 1.09 * entropy_bytes(kSize, density) + 100);
  }
}

TEST(mask_frames_with_a_flipped_bit_are_refused) {
  std::mt19937_64 generator(16);
  for (const double density : {0.0, 0.05, 0.5, 0.95, 1.0}) {
    const Bytes frame = encode_mask(random_mask(300, density, generator));
    for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      Bytes flipped = frame;
      flipped[bit / 8] = static_cast<std::uint8_t>(flipped[bit / 8] ^ (1U << (bit % 8)));
      CHECK_THROWS(decode_mask(flipped), ErrorCode::kWireFormat);
      CHECK_THROWS(inspect_mask(flipped), ErrorCode::kWireFormat);
    }
  }
}

TEST(mask_frames_that_are_truncated_or_extended_are_refused) {
  std::mt19937_64 generator(17);
  for (const double density : {0.0, 0.05, 0.5, 0.95, 1.0}) {
    const Bitset mask = random_mask(300, density, generator);
    const Bytes frame = encode_mask(mask);
    for (std::size_t length = 0; length < frame.size(); ++length) {
      CHECK_THROWS(decode_mask(std::span(frame).first(length)), ErrorCode::kWireFormat);
    }
    // With header and checksum made to fit: the payload alone is short or long.
    const MaskInfo info = inspect_mask(frame);
    const auto payload = std::span(frame).subspan(kPayload, info.payload_bytes);
    for (std::size_t length = 0; length < payload.size(); ++length) {
      const Bytes part(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(length));
      CHECK(!accepted(frame_of(info.size, info.count, info.encoding, info.log2_divisor, part)));
    }
    Bytes longer(payload.begin(), payload.end());
    for (const std::size_t extra : {1, 7, 8, 9, 64}) {
      longer.resize(payload.size() + extra, 0);
      CHECK(!accepted(frame_of(info.size, info.count, info.encoding, info.log2_divisor, longer)));
    }
  }
}

TEST(mutated_mask_frames_with_a_fitting_checksum_never_pass_as_another_form) {
  std::mt19937_64 generator(18);
  std::size_t passed = 0;
  for (int repeat = 0; repeat < 60'000; ++repeat) {
    const std::size_t size = kSizes[generator() % 9];  // small ones, so that mutations reach everything
    Bytes frame = encode_mask(random_mask(size, kDensities[generator() % kDensities.size()], generator));
    const std::size_t body_bytes = frame.size() - kFrameHeaderBytes - kFrameTrailerBytes;
    for (std::uint64_t edits = 1 + generator() % 3; edits != 0; --edits) {
      const std::size_t place = kFrameHeaderBytes + generator() % body_bytes;
      // Not the upper bytes of the size: a stated size below the limit is a legitimate request for memory.
      if (place == kFrameHeaderBytes + 2 || place == kFrameHeaderBytes + 3) continue;
      frame[place] = static_cast<std::uint8_t>(frame[place] ^ (1U << (generator() % 8)));
    }
    passed += accepted(resealed(std::move(frame))) ? 1 : 0;
  }
  CHECK(passed > 0);  // a bit of a bitmap and one of its count, say
}

TEST(mask_frames_with_a_wrong_field_are_refused) {
  const std::vector<std::int64_t> some = {3, 40, 41, 250};
  const Bitset mask = Bitset::from_indices(some, 300);
  const Bytes frame = encode_mask(mask);
  const std::size_t size_at = kFrameHeaderBytes;
  const std::size_t count_at = size_at + 8;
  CHECK(accepted(frame));
  for (std::size_t place = 16; place < 48; ++place) {  // parameter id and key id
    CHECK(!accepted(with_field(frame, place, std::uint8_t{1})));
  }
  for (const std::uint64_t size :
       {kMaxPositions + 1, kAllOnes, kAllOnes / 8, std::uint64_t{0}, std::uint64_t{250}}) {
    CHECK(!accepted(with_field(frame, size_at, size)));
  }
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{5}, std::uint64_t{296},
                                    std::uint64_t{300}, std::uint64_t{301}, kAllOnes}) {
    CHECK(!accepted(with_field(frame, count_at, count)));
  }
  for (unsigned encoding = 0; encoding < 256; ++encoding) {
    for (unsigned divisor = 0; divisor < 256; ++divisor) {
      Bytes altered = frame;
      altered[count_at + 8] = static_cast<std::uint8_t>(encoding);
      altered[count_at + 9] = static_cast<std::uint8_t>(divisor);
      const bool same = altered == frame;
      CHECK(accepted(resealed(std::move(altered))) == same);
    }
  }
}

TEST(mask_payloads_that_break_the_rules_are_refused) {
  using enum MaskEncoding;
  CHECK(accepted(frame_of(4, 2, kBitmap, 0, {0x05})));
  CHECK(!accepted(frame_of(4, 2, kBitmap, 0, {0x15})));  // a bit past the size
  CHECK(!accepted(frame_of(4, 2, kBitmap, 0, {0x07})));  // a count that does not fit
  const unsigned k = rice_log2_divisor(10'000, 2);
  // No one in sight: the run of zeros must end where the payload does.
  for (const std::size_t length : {4, 8, 16, 100, 10'000}) {
    CHECK(!accepted(frame_of(10'000, 2, kRice, k, Bytes(length, 0))));
  }
  CHECK(!accepted(frame_of(10'000, 2, kRice, k, Bytes(4, 0xff))));  // past the size
  Bytes padded = encode_mask(Bitset::from_indices(std::vector<std::int64_t>{1, 2, 3}, 10'000));
  const std::size_t last = padded.size() - kFrameTrailerBytes - 1;
  const std::uint64_t used_bits = 3 * (rice_log2_divisor(10'000, 3) + 1);
  CHECK(used_bits % 8 != 0);
  for (std::uint64_t bit = used_bits % 8; bit < 8; ++bit) {
    CHECK(!accepted(with_field(padded, last, static_cast<std::uint8_t>(padded[last] | (1U << bit)))));
  }
}

}  // namespace mask_codec_tests
