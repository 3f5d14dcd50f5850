#include "mask/zones.h"

#include <cstdint>

#include "common/error.h"
#include "mask/words.h"

namespace shieldfl::mask {

Zones split_zones(const Bitset& local, const Bitset& encrypted) {
  Zones zones{encrypted, local - encrypted, ~(local | encrypted)};
  check_zones(zones);
  return zones;
}

void check_zones(const Zones& zones) {
  const std::uint64_t size = zones.encrypted.size();
  check_same_size(size, zones.personalised.size());
  check_same_size(size, zones.noise.size());

  const auto encrypted = zones.encrypted.words();
  const auto personalised = zones.personalised.words();
  const auto noise = zones.noise.words();
  std::uint64_t covered = 0;
  for (std::size_t w = 0; w < encrypted.size(); ++w) {
    covered += count_bits(encrypted[w] | personalised[w] | noise[w]);
  }
  // All positions covered, by sets that have no more members than that: none is in two of them.
  const std::uint64_t members = zones.encrypted.count() + zones.personalised.count() + zones.noise.count();
  if (covered != size || members != size) {
    throw Error(ErrorCode::kInternal, "the zones of a client overlap or leave positions out");
  }
}

}  // namespace shieldfl::mask
