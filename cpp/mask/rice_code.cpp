#include "mask/rice_code.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/error.h"
#include "common/verify.h"
#include "mask/words.h"

namespace shieldfl::mask {
namespace {

constexpr std::uint64_t low_bits(unsigned count) {
  return (std::uint64_t{1} << count) - 1;
}

// Looks at a code 57 bits or more at a time, at any bit. Past its end there are zeros.
class BitWindow {
 public:
  static constexpr unsigned kBits = 57;

  explicit BitWindow(std::span<const std::uint8_t> code) : code_(code) {}

  [[nodiscard]] std::uint64_t at(std::uint64_t bit) const {
    const std::uint64_t byte = bit / 8;
    std::uint64_t window = 0;
    if (byte + sizeof window <= code_.size()) {
      std::memcpy(&window, code_.data() + byte, sizeof window);
    } else if (byte < code_.size()) {
      std::memcpy(&window, code_.data() + byte, code_.size() - byte);
    }
    return window >> (bit % 8);
  }

 private:
  std::span<const std::uint8_t> code_;
};

}  // namespace

std::uint64_t rice_bits_bound(std::uint64_t size, std::uint64_t count, unsigned log2_divisor) {
  // The gaps sum to size - count at most, so their quotients to no more than this part of it.
  return count == 0 ? 0 : count * (log2_divisor + 1) + ((size - count) >> log2_divisor);
}

unsigned rice_log2_divisor(std::uint64_t size, std::uint64_t count) {
  unsigned best = 0;
  for (unsigned candidate = 1; candidate <= kMaxLog2Divisor; ++candidate) {
    if (rice_bits_bound(size, count, candidate) < rice_bits_bound(size, count, best)) best = candidate;
  }
  return best;
}

RiceCode rice_encode(std::span<const std::uint64_t> words, std::uint64_t size, std::uint64_t count,
                     bool complement, unsigned log2_divisor) {
  VERIFY(words.size() == words_for(size) && log2_divisor <= kMaxLog2Divisor);
  VERIFY((complement ? size - count_bits(words) : count_bits(words)) == count);
  RiceCode code;
  // Zeroed, so that a quotient is written by going on; one word more, for a code that crosses into it.
  code.words.assign(words_for(rice_bits_bound(size, count, log2_divisor)) + 1, 0);
  std::uint64_t* const out = code.words.data();
  const std::uint64_t flip = complement ? kAllOnes : 0;
  std::uint64_t bit = 0;
  std::uint64_t next = 0;  // the position after the last one coded
  const auto put = [&](std::uint64_t position) {
    const std::uint64_t gap = position - next;
    next = position + 1;
    bit += gap >> log2_divisor;
    const std::uint64_t value = 1 | ((gap & low_bits(log2_divisor)) << 1);  // at most 32 bits
    const std::uint64_t shift = bit % kWordBits;
    out[bit / kWordBits] |= value << shift;
    if (shift > kWordBits / 2) out[bit / kWordBits + 1] |= value >> (kWordBits - shift);
    bit += log2_divisor + 1;
  };
  for (std::size_t w = 0; w < words.size(); ++w) {
    std::uint64_t word = words[w] ^ flip;
    if (w + 1 == words.size()) word &= tail_bits(size);
    for_each_bit(word, w * kWordBits, put);
  }
  VERIFY(bit <= rice_bits_bound(size, count, log2_divisor));
  code.bytes = (bit + 7) / 8;
  return code;
}

void rice_decode(std::span<const std::uint8_t> code, std::uint64_t size, std::uint64_t count,
                 unsigned log2_divisor, std::span<std::uint64_t> words) {
  VERIFY(words.size() == words_for(size) && log2_divisor <= kMaxLog2Divisor &&
         all_below(words.data(), words.size(), 1));
  const BitWindow window(code);
  const std::uint64_t code_bits = std::uint64_t{code.size()} * 8;
  std::uint64_t bit = 0;
  std::uint64_t next = 0;  // the position after the last one decoded
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t start = bit;
    std::uint64_t bits = window.at(bit);
    while (bits == 0) {  // a long quotient, or the end
      bit += BitWindow::kBits;
      if (bit >= code_bits) fail_wire_format("the mask's code ends before its last position: it was altered");
      bits = window.at(bit);
    }
    const auto zeros = static_cast<unsigned>(std::countr_zero(bits));
    bit += zeros;
    const std::uint64_t quotient = bit - start;
    bit += 1;
    // What is left of the window may be too short for the remainder.
    const std::uint64_t rest =
        zeros + 1 + log2_divisor <= BitWindow::kBits ? bits >> (zeros + 1) : window.at(bit);
    bit += log2_divisor;
    if (bit > code_bits) fail_wire_format("the mask's code ends before its last position: it was altered");

    const std::uint64_t position = next + (quotient << log2_divisor | (rest & low_bits(log2_divisor)));
    if (position >= size) fail_wire_format("the mask's code leaves the mask: it was altered");
    words[position / kWordBits] |= std::uint64_t{1} << (position % kWordBits);
    next = position + 1;
  }
  if ((bit + 7) / 8 != code.size()) {
    fail_wire_format("the mask's code goes on after its last position: it was altered");
  }
  if (window.at(bit) != 0) fail_wire_format("the padding of the mask's code is not zero: it was altered");
}

}  // namespace shieldfl::mask
