// The vote kernels, written once for vectors of any width.
//
// `Lanes` (lanes_*.h) is a type of the including file's own, so that no two files share an instantiation: the
// linker could otherwise keep the one that needs the newer processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/verify.h"
#include "mask/vote_kernels.h"

namespace shieldfl::mask {

template <typename Lanes>
struct VoteAlgorithms {
  using Vector = typename Lanes::Vector;
  static constexpr std::size_t kWords = Lanes::kWords;

  static void add_vote(std::uint64_t* const* planes, std::size_t plane_count, const std::uint64_t* mask,
                       std::size_t words) {
    VERIFY(plane_count <= kMaxPlanes);
    constexpr std::size_t kTogether = 4;  // enough that the planes they do not reach are worth the question
    std::size_t i = 0;
    for (; i + kTogether * kWords <= words; i += kTogether * kWords) {
      Vector carry[kTogether];
      for (std::size_t k = 0; k < kTogether; ++k) carry[k] = Lanes::load(mask + i + k * kWords);
      for (std::size_t j = 0; j < plane_count; ++j) {
        Vector left = Lanes::zero();
        for (std::size_t k = 0; k < kTogether; ++k) {
          std::uint64_t* const place = planes[j] + i + k * kWords;
          const Vector plane = Lanes::load(place);
          Lanes::store(place, plane ^ carry[k]);
          carry[k] &= plane;
          left |= carry[k];
        }
        if (!Lanes::any(left)) break;
      }
    }
    for (; i < words; i += kWords) {
      Vector carry = load_up_to(mask + i, words - i);
      for (std::size_t j = 0; j < plane_count; ++j) {
        const Vector plane = load_up_to(planes[j] + i, words - i);
        store_up_to(planes[j] + i, plane ^ carry, words - i);
        carry &= plane;
      }
    }
  }

  static void counters_at_least(const std::uint64_t* const* planes, std::size_t plane_count,
                                std::uint64_t threshold, std::uint64_t* out, std::size_t words) {
    VERIFY(plane_count <= kMaxPlanes && threshold < std::uint64_t{1} << plane_count);
    for (std::size_t i = 0; i < words; i += kWords) {
      AtLeast comparison(threshold);
      for (std::size_t j = 0; j < plane_count; ++j) comparison.next(load_up_to(planes[j] + i, words - i));
      store_up_to(out + i, comparison.result, words - i);
    }
  }

  static void chosen_by(const std::uint64_t* const* masks, std::size_t mask_count, std::size_t first_word,
                        std::uint64_t threshold, std::uint64_t* out, std::size_t words) {
    VERIFY(mask_count < std::uint64_t{1} << kMaxPlanes && threshold <= mask_count);
    for (std::size_t i = 0; i < words; i += kWords) {
      const std::size_t left = words - i;
      Tally tally(mask_count);
      std::size_t client = 0;
      if (left >= kWords) {
        for (; client + 8 <= mask_count; client += 8) {
          tally.add_eight([&](std::size_t k) { return load_ahead(masks[client + k] + first_word + i); });
        }
      }
      for (; client < mask_count; client += 8) {
        tally.add_eight([&](std::size_t k) {
          if (client + k >= mask_count) return Lanes::zero();
          const std::uint64_t* const from = masks[client + k] + first_word + i;
          return left >= kWords ? load_ahead(from) : Lanes::load_some(from, left);
        });
      }
      store_up_to(out + i, tally.at_least(threshold), left);
    }
  }

  static std::uint64_t split(const std::uint64_t* local, const std::uint64_t* encrypted,
                             std::uint64_t* personalised, std::uint64_t* noise, std::size_t words) {
    Vector count = Lanes::zero();
    for (std::size_t i = 0; i < words; i += kWords) {
      const std::size_t left = words - i;
      const Vector mine = load_up_to(local + i, left);
      const Vector all = load_up_to(encrypted + i, left);
      store_up_to(personalised + i, mine & ~all, left);
      store_up_to(noise + i, ~(mine | all), left);
      count += Lanes::count(mine & ~all);
    }
    return Lanes::total(count);
  }

 private:
  // The processor follows few streams by itself, and none into another page: 20 masks are more, and each
  // needs the lines that come four later. Into the second-level cache: blocks that begin at like addresses
  // would displace each other from the first.
  static constexpr std::size_t kAheadWords = 32;
  static Vector load_ahead(const std::uint64_t* from) {
    // Often past the mask's end, where there is no pointer to point.
    const auto ahead = reinterpret_cast<std::uintptr_t>(from) + kAheadWords * sizeof(std::uint64_t);
    __builtin_prefetch(reinterpret_cast<const void*>(ahead), 0, 2);
    return Lanes::load(from);
  }
  static Vector load_up_to(const std::uint64_t* from, std::size_t words) {
    return words >= kWords ? Lanes::load(from) : Lanes::load_some(from, words);
  }
  static void store_up_to(std::uint64_t* to, Vector v, std::size_t words) {
    if (words >= kWords) {
      Lanes::store(to, v);
    } else {
      Lanes::store_some(to, v, words);
    }
  }

  // Compares counters with a threshold, plane by plane from the lowest: "at least" where they are equal so
  // far, and overruled by every higher plane where they differ.
  struct AtLeast {
    explicit AtLeast(std::uint64_t threshold) : bits(threshold) {}

    void next(Vector plane) {
      result = (bits & 1) != 0 ? result & plane : result | plane;
      bits >>= 1;
    }

    std::uint64_t bits;
    Vector result = ~Lanes::zero();
  };

  // Counters of one vector. The three lowest planes take eight votes through seven full adders, which send
  // one carry to the planes above.
  struct Tally {
    explicit Tally(std::size_t voters) {
      while (voters >> (3 + above_count) != 0) above[above_count++] = Lanes::zero();
    }

    template <typename Vote>
    [[gnu::always_inline]] void add_eight(Vote vote) {
      const Vector two_a = add(ones, vote(0), vote(1));
      const Vector two_b = add(ones, vote(2), vote(3));
      const Vector four_a = add(twos, two_a, two_b);
      const Vector two_c = add(ones, vote(4), vote(5));
      const Vector two_d = add(ones, vote(6), vote(7));
      const Vector four_b = add(twos, two_c, two_d);
      Vector carry = add(fours, four_a, four_b);
      for (std::size_t j = 0; j < above_count; ++j) {
        const Vector plane = above[j];
        above[j] = plane ^ carry;
        carry &= plane;
      }
    }

    Vector at_least(std::uint64_t threshold) const {
      AtLeast comparison(threshold);
      comparison.next(ones);
      comparison.next(twos);
      comparison.next(fours);
      for (std::size_t j = 0; j < above_count; ++j) comparison.next(above[j]);
      return comparison.result;
    }

    // plane + a + b: the sum stays, the carry is returned.
    static Vector add(Vector& plane, Vector a, Vector b) {
      const Vector carry = Lanes::majority(plane, a, b);
      plane = Lanes::parity(plane, a, b);
      return carry;
    }

    Vector ones = Lanes::zero();
    Vector twos = Lanes::zero();
    Vector fours = Lanes::zero();
    Vector above[kMaxPlanes - 3];
    std::size_t above_count = 0;
  };
};

template <typename Lanes>
constexpr VoteKernels vote_kernels_over() {
  using Algorithms = VoteAlgorithms<Lanes>;
  return {Algorithms::add_vote, Algorithms::counters_at_least, Algorithms::chosen_by, Algorithms::split};
}

}  // namespace shieldfl::mask
