#include "pads/pad_stream.h"

#include <algorithm>

#include "common/verify.h"

namespace shieldfl::pads {
namespace {

constexpr unsigned kShortPadBits = 32;

}  // namespace

PadAdder::PadAdder(const ParameterFacts& facts)
    : kernels_(pad_kernels(instruction_set())),
      mask_(facts.field_mask()),
      short_pads_(facts.field_bits() <= kShortPadBits) {}

void PadAdder::add(const Seed& frame_seed, std::size_t block, std::span<const std::uint64_t> in,
                   std::span<std::uint64_t> out) const {
  VERIFY(in.size() == kBlockWords && out.size() == kBlockWords);
  RandomStream stream(frame_seed, block);
  const std::size_t pads_in_word = short_pads_ ? 2 : 1;
  const std::size_t words = kBlockWords / pads_in_word;
  for (std::size_t word = 0; word < words; word += RandomStream::kMaxPeekWords) {
    const std::size_t peeked = std::min(words - word, RandomStream::kMaxPeekWords);
    const std::uint64_t* pads = stream.peek_words(peeked, words - word).data();
    const auto add = short_pads_ ? kernels_.add_short_pads : kernels_.add_long_pads;
    const std::size_t first = word * pads_in_word;
    add(in.data() + first, pads, peeked * pads_in_word, mask_, out.data() + first);
    stream.consume_words(peeked);
  }
}

}  // namespace shieldfl::pads
