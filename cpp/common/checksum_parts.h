// The checksum of a frame whose parts several threads write or read at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace shieldfl {

class ChecksumParts {
 public:
  // Takes the memory for this many parts, so that adding that many cannot fail.
  explicit ChecksumParts(std::size_t parts) { parts_.reserve(parts); }

  // The CRC-32C of part number `place` in the order of the bytes (numbers may be left out), of `length`
  // bytes. Thread-safe.
  void add(std::size_t place, std::uint32_t checksum, std::uint64_t length);
  // The checksum of `head` followed by all parts.
  [[nodiscard]] std::uint32_t after(std::uint32_t head);

 private:
  struct Part {
    std::size_t place;
    std::uint32_t checksum;
    std::uint64_t length;
  };
  std::mutex mutex_;
  std::vector<Part> parts_;
};

}  // namespace shieldfl
