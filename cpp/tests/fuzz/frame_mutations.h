// The ways in which the fuzzer damages frames.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "ckks/parameters.h"
#include "common/digest.h"
#include "tests/altered_frames.h"

namespace shieldfl::tests {

class FrameMutator {
 public:
  explicit FrameMutator(std::uint64_t seed) : generator_(seed) {}

  // Uniform below `bound`, which is not 0.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(generator_() % bound); }
  bool once_in(std::size_t times) { return below(times) == 0; }

  // Damages `frame` in one to four places; `other` is what it may be spliced with. In three of four cases the
  // envelope is made right afterwards, and now and then the parameter id as well, so that deep checks are
  // reached.
  void mutate(Frame& frame, const Frame& other) {
    for (std::size_t i = 1 + below(4); i > 0; --i) mutate_once(frame, other);
    if (once_in(8)) fix_parameter_id(frame);
    if (!once_in(4)) reseal(frame);
  }

  // A frame of its own to every parser: a batch with another identifier.
  void replace_id(Frame& frame, std::size_t offset) {
    for (std::size_t i = 0; i < 16; ++i) frame[offset + i] = static_cast<std::uint8_t>(generator_());
    reseal(frame);
  }

 private:
  // Mostly in the first bytes, where the fields are.
  std::size_t place(const Frame& frame) {
    return below(once_in(3) ? frame.size() : std::min<std::size_t>(frame.size(), 160));
  }

  void mutate_once(Frame& frame, const Frame& other) {
    if (frame.empty()) frame.push_back(0);
    const std::size_t at = place(frame);
    switch (below(9)) {
      case 0:
      case 1:
        frame[at] = static_cast<std::uint8_t>(frame[at] ^ (1U << below(8)));
        break;
      case 2:
        frame[at] = static_cast<std::uint8_t>(generator_());
        break;
      case 3:
      case 4:
        overwrite_integer(frame, at);
        break;
      case 5:
        frame.resize(at);
        break;
      case 6:
        frame.insert(frame.end(), 1 + below(40), static_cast<std::uint8_t>(generator_()));
        break;
      case 7:
        swap_chunks(frame);
        break;
      default:
        frame.resize(at);
        if (!other.empty()) {
          const auto from =
              static_cast<std::ptrdiff_t>(once_in(2) ? std::min(at, other.size()) : below(other.size()));
          frame.insert(frame.end(), other.begin() + from, other.end());
        }
    }
  }

  void overwrite_integer(Frame& frame, std::size_t at) {
    const std::array<std::uint64_t, 9> boundaries = {0,
                                                     1,
                                                     255,
                                                     std::uint64_t{1} << 31,
                                                     (std::uint64_t{1} << 31) + 1,
                                                     std::uint64_t{1} << 40,
                                                     std::uint64_t{1} << 63,
                                                     ~std::uint64_t{0},
                                                     frame.size()};
    const std::uint64_t value = boundaries[below(boundaries.size())];
    const std::size_t size = std::min(std::size_t{1} << below(4), frame.size());
    const std::size_t aligned = std::min(at / size * size, frame.size() - size);
    std::memcpy(frame.data() + aligned, &value, size);
  }

  void swap_chunks(Frame& frame) {
    const std::size_t size = 1 + below(std::max<std::size_t>(1, frame.size() / 4));
    if (2 * size > frame.size()) return;
    const std::size_t first = below(frame.size() - 2 * size + 1);
    const std::size_t second = first + size + below(frame.size() - first - 2 * size + 1);
    const auto begin = frame.begin();
    std::swap_ranges(begin + static_cast<std::ptrdiff_t>(first),
                     begin + static_cast<std::ptrdiff_t>(first + size),
                     begin + static_cast<std::ptrdiff_t>(second));
  }

  // Makes the header name the parameters that the body has, whatever these have become.
  static void fix_parameter_id(Frame& frame) {
    constexpr std::size_t kPrimeCountOffset = kFrameHeaderBytes + 8;
    if (frame.size() <= kPrimeCountOffset) return;
    const std::size_t size = ckks::ParameterFacts::encoded_bytes(frame[kPrimeCountOffset]);
    if (kFrameHeaderBytes + size > frame.size()) return;
    const Id id = digest(std::span(frame).subspan(kFrameHeaderBytes, size));
    std::copy(id.begin(), id.end(), frame.begin() + 16);
  }

  std::mt19937_64 generator_;
};

}  // namespace shieldfl::tests
