// Secrets that must not be found in what was given back, in each form that they take.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/freed_memory/watch.h"

namespace shieldfl::tests {

class Secrets {
 public:
  // Parts of eight elements are looked for, of 32 bytes at least, but for such as are a word over and over.
  // Eight small numbers are hardly anywhere by chance, four are.
  template <typename Row>
  void add(const std::string& name, const Row& row) {
    constexpr std::size_t kElement = sizeof(row[0]);
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(std::data(row));
    add_parts(name, {bytes, std::size(row) * kElement}, kElement > 4 ? 64 : 32);
  }

  // Where which of them are: "NAME on the heap", each once; empty where none is.
  [[nodiscard]] std::vector<std::string> found_in(const Remains& remains) const;

 private:
  struct Part {
    std::vector<std::uint8_t> bytes;
    std::string name;
  };
  using Parts = std::unordered_map<std::uint64_t, Part>;  // by a hash of their bytes

  void add_parts(const std::string& name, std::span<const std::uint8_t> bytes, std::size_t length);
  static void look_through(std::span<const std::uint8_t> memory, std::size_t length, const Parts& parts,
                           std::string_view where, std::vector<std::string>& found);

  std::map<std::size_t, Parts> parts_;  // by their length
};

}  // namespace shieldfl::tests
