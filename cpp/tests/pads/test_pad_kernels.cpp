// The kernels of pads give the same on every instruction set.
#include <cstdint>
#include <random>
#include <vector>

#include "common/cpu_features.h"
#include "pads/pad_kernels.h"
#include "tests/check.h"

namespace pads_pad_kernels_tests {

using namespace shieldfl;
using namespace shieldfl::pads;

TEST(all_sets_agree_and_are_right) {
  std::mt19937_64 generator(7);
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{1024}}) {
    for (const unsigned bits : {2U, 30U, 32U, 33U, 54U}) {
      const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
      std::vector<std::uint64_t> in(count);
      std::vector<std::uint64_t> stream(count + 1);
      for (std::uint64_t& one : in) one = generator();
      for (std::uint64_t& one : stream) one = generator();
      for (const InstructionSet set : supported_instruction_sets()) {
        const PadKernels& kernels = pad_kernels(set);
        std::vector<std::uint64_t> out(count, 1);
        kernels.add_short_pads(in.data(), stream.data(), count, mask, out.data());
        for (std::size_t i = 0; i < count; ++i) {
          CHECK(out[i] == ((in[i] + (stream[i / 2] >> 32 * (i % 2) & 0xFFFFFFFF)) & mask));
        }
        kernels.add_long_pads(in.data(), stream.data(), count, mask, out.data());
        for (std::size_t i = 0; i < count; ++i) CHECK(out[i] == ((in[i] + stream[i]) & mask));

        std::vector<double> sums(count);
        const std::uint64_t most = mask >> 1;
        CHECK(kernels.take_sums(in.data(), stream.data(), count, bits, most, 0.5, sums.data()) <= 1);
        std::uint64_t largest = 0;
        for (std::size_t i = 0; i < count; ++i) {
          auto sum = static_cast<std::int64_t>((in[i] - stream[i]) & mask);
          if (sum > static_cast<std::int64_t>(most)) sum -= static_cast<std::int64_t>(mask) + 1;
          CHECK(sums[i] == 0.5 * static_cast<double>(sum));
          largest = std::max(largest, static_cast<std::uint64_t>(sum < 0 ? -sum : sum));
        }
        if (largest > most) continue;  // the one number that has no opposite
        CHECK(kernels.take_sums(in.data(), stream.data(), count, bits, largest, 0.5, sums.data()) == 0);
        if (largest > 0) {
          CHECK(kernels.take_sums(in.data(), stream.data(), count, bits, largest - 1, 0.5, sums.data()) != 0);
        }
      }
    }
  }
}

}  // namespace pads_pad_kernels_tests
