#include "common/checksum_parts.h"

#include <algorithm>

#include "common/crc32c.h"

namespace shieldfl {

void ChecksumParts::add(std::size_t place, std::uint32_t checksum, std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  parts_.push_back({place, checksum, length});
}

std::uint32_t ChecksumParts::after(std::uint32_t head) {
  const std::lock_guard lock(mutex_);
  std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.place < b.place; });
  for (const Part& part : parts_) head = crc32c_combine(head, part.checksum, part.length);
  return head;
}

}  // namespace shieldfl
