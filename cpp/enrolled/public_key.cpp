#include "enrolled/public_key.h"

namespace shieldfl::enrolled {

Id session_id(const Id& parameter_id, const Digest& manifest, const Id& authority, std::uint32_t epoch) {
  std::vector<std::uint8_t> bytes(parameter_id.begin(), parameter_id.end());
  bytes.insert(bytes.end(), manifest.begin(), manifest.end());
  bytes.insert(bytes.end(), authority.begin(), authority.end());
  const auto* data = reinterpret_cast<const std::uint8_t*>(&epoch);
  bytes.insert(bytes.end(), data, data + sizeof epoch);
  return digest(bytes);
}

}  // namespace shieldfl::enrolled
