#include "mask/mask_codec.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/error.h"
#include "common/wire.h"
#include "mask/rice_code.h"
#include "mask/words.h"

namespace shieldfl::mask {
namespace {

constexpr std::size_t kFixedBytes = 8 + 8 + 1 + 1;

struct Choice {
  MaskEncoding encoding;
  unsigned log2_divisor;
};

std::uint64_t coded_positions(std::uint64_t size, std::uint64_t count) {
  return std::min(count, size - count);
}

std::uint64_t bitmap_bytes(std::uint64_t size) {
  return (size + 7) / 8;
}

// The one encoding that a mask of this size and count may have.
Choice choose(std::uint64_t size, std::uint64_t count) {
  const std::uint64_t coded = coded_positions(size, count);
  const unsigned log2_divisor = rice_log2_divisor(size, coded);
  if (rice_bits_bound(size, coded, log2_divisor) >= size) return {MaskEncoding::kBitmap, 0};
  return {coded == count ? MaskEncoding::kRice : MaskEncoding::kRiceComplement, log2_divisor};
}

MaskInfo take_info(FrameReader& reader) {
  if (reader.header().parameter_id != Id{} || reader.header().key_id != Id{}) {
    fail_wire_format(
        "a mask frame belongs to no parameters and no key, and this one names some: it was altered");
  }
  MaskInfo info{};
  info.size = reader.take<std::uint64_t>();
  info.count = reader.take<std::uint64_t>();
  const auto encoding = reader.take<std::uint8_t>();
  info.log2_divisor = reader.take<std::uint8_t>();
  info.payload_bytes = reader.remaining();
  if (info.size > kMaxPositions) {
    fail_wire_format("the mask states " + std::to_string(info.size) + " positions: the limit is " +
                     std::to_string(kMaxPositions));
  }
  if (info.count > info.size) {
    fail_wire_format("the mask states more chosen positions than it has: it was altered");
  }
  const Choice choice = choose(info.size, info.count);
  if (encoding != static_cast<std::uint8_t>(choice.encoding) || info.log2_divisor != choice.log2_divisor) {
    fail_wire_format("the mask's encoding is not the one for its size and count: it was altered");
  }
  info.encoding = choice.encoding;

  // The payload's length is checked against what the codes take at least, and a bitmap takes exactly.
  if (choice.encoding == MaskEncoding::kBitmap) {
    if (info.payload_bytes != bitmap_bytes(info.size)) {
      fail_wire_format("the mask's bitmap has the wrong length");
    }
  } else if (info.payload_bytes <
             (coded_positions(info.size, info.count) * (info.log2_divisor + 1) + 7) / 8) {
    fail_wire_format("the mask's code is shorter than its count allows: it was altered");
  }
  return info;
}

}  // namespace

const char* mask_encoding_name(MaskEncoding encoding) {
  switch (encoding) {
    case MaskEncoding::kBitmap:
      return "bitmap";
    case MaskEncoding::kRice:
      return "Rice";
    case MaskEncoding::kRiceComplement:
      return "Rice of the complement";
  }
  return "unknown";
}

std::vector<std::uint8_t> encode_mask(const Bitset& mask) {
  const Choice choice = choose(mask.size(), mask.count());
  RiceCode code;
  const std::uint64_t* payload = mask.words().data();
  std::size_t payload_bytes = bitmap_bytes(mask.size());
  if (choice.encoding != MaskEncoding::kBitmap) {
    code = rice_encode(mask.words(), mask.size(), coded_positions(mask.size(), mask.count()),
                       choice.encoding == MaskEncoding::kRiceComplement, choice.log2_divisor);
    payload = code.words.data();
    payload_bytes = code.bytes;
  }
  FrameWriter writer({FrameKind::kMask, {}, {}}, kFixedBytes + payload_bytes);
  writer.put(mask.size());
  writer.put(mask.count());
  writer.put(static_cast<std::uint8_t>(choice.encoding));
  writer.put(static_cast<std::uint8_t>(choice.log2_divisor));
  writer.put_bytes({reinterpret_cast<const std::uint8_t*>(payload), payload_bytes});
  return writer.finish();
}

Bitset decode_mask(std::span<const std::uint8_t> frame, std::optional<std::uint64_t> expected_size) {
  FrameReader reader(frame, FrameKind::kMask);
  const MaskInfo info = take_info(reader);
  if (expected_size && info.size != *expected_size) {
    fail_wire_format("the mask has " + std::to_string(info.size) + " positions and " +
                     std::to_string(*expected_size) + " were expected: use masks over the same parameters");
  }
  const auto payload = reader.take_bytes(info.payload_bytes);
  reader.expect_end();

  WordVector words(words_for(info.size), 0);
  if (info.encoding == MaskEncoding::kBitmap) {
    if (!payload.empty()) std::memcpy(words.data(), payload.data(), payload.size());
    if (!words.empty() && (words.back() & ~tail_bits(info.size)) != 0) {
      fail_wire_format("the mask has bits set past its positions: it was altered");
    }
  } else {
    rice_decode(payload, info.size, coded_positions(info.size, info.count), info.log2_divisor, words);
    if (info.encoding == MaskEncoding::kRiceComplement) {
      for (std::uint64_t& word : words) word = ~word;
      words.back() &= tail_bits(info.size);
    }
  }
  Bitset mask = Bitset::from_words(std::move(words), info.size);
  if (mask.count() != info.count) {
    fail_wire_format("the mask's count does not fit its positions: it was altered");
  }
  return mask;
}

MaskInfo inspect_mask(std::span<const std::uint8_t> frame) {
  FrameReader reader(frame, FrameKind::kMask);
  return take_info(reader);
}

}  // namespace shieldfl::mask
