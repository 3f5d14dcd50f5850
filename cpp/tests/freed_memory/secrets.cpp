#include "tests/freed_memory/secrets.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace shieldfl::tests {
namespace {

// Whether these are more than a few words over and over: constants that are no secret fill vectors.
bool is_telling(std::span<const std::uint8_t> bytes) {
  std::array<std::uint64_t, 8> words{};
  const std::size_t count = bytes.size() / sizeof words[0];
  std::memcpy(words.data(), bytes.data(), bytes.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < count; ++i)
    different += std::find(words.begin(), words.begin() + i, words[i]) == words.begin() + i ? 1 : 0;
  return different >= 3;
}

// A hash of bytes that is worked out from that of those one further down.
class RollingHash {
 public:
  explicit RollingHash(std::span<const std::uint8_t> bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value_ = value_ * kFactor + bytes[i];
      if (i > 0) first_factor_ *= kFactor;
    }
  }
  void go_on(std::uint8_t leaves, std::uint8_t enters) {
    value_ = (value_ - first_factor_ * leaves) * kFactor + enters;
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  static constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;
  std::uint64_t value_ = 0;
  std::uint64_t first_factor_ = 1;
};

}  // namespace

void Secrets::add_parts(const std::string& name, std::span<const std::uint8_t> bytes, std::size_t length) {
  for (std::size_t i = 0; i + length <= bytes.size(); i += length) {
    const auto part = bytes.subspan(i, length);
    if (!is_telling(part)) continue;
    parts_[length].emplace(RollingHash(part).value(), Part{{part.begin(), part.end()}, name});
  }
}

std::vector<std::string> Secrets::found_in(const Remains& remains) const {
  std::vector<std::string> found;
  for (const auto& [length, parts] : parts_) {
    look_through(remains.heap, length, parts, " on the heap", found);
    look_through(remains.stack, length, parts, " on the stack", found);
  }
  return found;
}

void Secrets::look_through(std::span<const std::uint8_t> memory, std::size_t length, const Parts& parts,
                           std::string_view where, std::vector<std::string>& found) {
  if (memory.size() < length) return;
  RollingHash hash(memory.first(length));
  for (std::size_t i = 0;; ++i) {
    const auto part = parts.find(hash.value());
    if (part != parts.end() && std::ranges::equal(part->second.bytes, memory.subspan(i, length))) {
      const std::string what = part->second.name + std::string(where);
      if (std::ranges::find(found, what) == found.end()) found.push_back(what);
    }
    if (i + length == memory.size()) return;
    hash.go_on(memory[i], memory[i + length]);
  }
}

}  // namespace shieldfl::tests
