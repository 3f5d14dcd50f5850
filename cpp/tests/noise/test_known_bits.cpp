// Clipped, rotated and noised values of fixed seeds, to the last bit.
#include <array>
#include <cstdint>
#include <vector>

#include "noise/clipping.h"
#include "noise/gaussian.h"
#include "noise/grid_noise.h"
#include "noise/noise_share.h"
#include "noise/rotation.h"
#include "tests/check.h"
#include "tests/known_bits.h"

namespace noise_known_bits_tests {

using namespace shieldfl;
using namespace shieldfl::tests;

// The lower bits of draws, which sums rounded to float hide: what their nearest floats leave of them.
TEST(draws_have_known_bits) {
  constexpr double kDeviation = 0.7;
  InsecureTestRandom seeds(2026);
  std::vector<float> nearest(20'011, 0.0F);
  noise::add_gaussian(nearest, kDeviation, seeds, 2);
  std::vector<float> rest(nearest.size());
  for (std::size_t i = 0; i < rest.size(); ++i) rest[i] = -nearest[i];
  InsecureTestRandom same_seeds(2026);
  noise::add_gaussian(rest, kDeviation, same_seeds, 2);
  check_known_bits("draws", {{"nearest", bits_of(nearest)}, {"rest", bits_of(rest)}},
                   {{"nearest", "ee358735841ec822"}, {"rest", "9000ac9ddf25710f"}});
}

TEST(clipping_and_noise_have_known_bits) {
  const std::vector<float> values = known_values<float>(20'011, 1.0, 1);
  std::vector<float> clipped(values.size());
  const noise::Clipping clipping = noise::clip(values, clipped, 1.5, 2);
  CHECK(clipping.was_clipped());
  InsecureTestRandom seeds(2026);
  std::vector<float> added = values;
  noise::add_gaussian(added, 0.7, seeds, 2);
  std::vector<float> continuous(values.size());
  noise::clip_and_add_gaussian(values, continuous, 1.5, 0.7, seeds, 2);
  std::vector<double> discrete(values.size());
  noise::clip_and_add_discrete_gaussian_vartime(values, discrete, 1.5, 12, {8'220'835, 1}, seeds, 2);
  const KnownBits made = {{"norm and factor", bits_of(std::array{clipping.original_norm, clipping.factor})},
                          {"clipped", bits_of(clipped)},
                          {"added", bits_of(added)},
                          {"clipped, and added", bits_of(continuous)},
                          {"clipped, and added on a grid", bits_of(discrete)}};
  check_known_bits("noise", made,
                   {{"norm and factor", "4d92f07027123f00"},
                    {"clipped", "340ef7c657150de5"},
                    {"added", "f2ff42178c7c68e9"},
                    {"clipped, and added", "701ce25e586edeb7"},
                    {"clipped, and added on a grid", "981c7f81e7ed2547"}});
}

TEST(rotations_and_shares_have_known_bits) {
  const std::vector<float> values = known_values<float>(300'001, 1.0, 1);
  const std::vector<double> wide(values.begin(), values.end());
  InsecureTestRandom seeds(2026);
  const Seed rotation = seeds.next();
  std::vector<float> rotated(values.size());
  noise::rotate<float>(values, rotated, rotation, 0.3, 2);
  std::vector<double> back(values.size());
  noise::rotate_back<double>(wide, back, rotation, 0.3, 2);
  const std::vector<std::uint64_t> high = {1ULL << 63, 0, 3ULL << 62, 1ULL << 60};
  const noise::NoiseTable table(high, std::vector<std::uint64_t>(4, 77),
                                std::vector<std::uint32_t>{1, 0, 3, 2});
  std::vector<std::int32_t> share(values.size());
  noise::noise_share_vartime(values, share, {50.0, 1e4, ~std::uint64_t{0}, 12'000, 12'001}, rotation, table,
                             seeds, 2);
  check_known_bits(
      "a share", {{"rotated", bits_of(rotated)}, {"back", bits_of(back)}, {"share", bits_of(share)}},
      {{"rotated", "d4b4b575488e5549"}, {"back", "8c032a33500da6c1"}, {"share", "0e74170e6a29a41f"}});
}

}  // namespace noise_known_bits_tests
