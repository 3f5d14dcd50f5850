#include <algorithm>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "common/checksum_parts.h"
#include "common/crc32c.h"
#include "tests/check.h"

namespace common_checksum_parts_tests {

using namespace shieldfl;

namespace {

struct Part {
  std::size_t place;
  std::span<const std::uint8_t> bytes;
};

struct Parts {
  std::vector<std::uint8_t> all;
  std::size_t head;  // bytes before the first part
  std::vector<Part> parts;
};

// Parts of any length, also none, at places that ascend with gaps.
Parts random_parts(std::size_t count, std::mt19937& generator) {
  Parts cut;
  cut.all.resize(5000);
  for (std::uint8_t& byte : cut.all) byte = static_cast<std::uint8_t>(generator());
  std::vector<std::size_t> ends(count + 1);
  for (std::size_t& end : ends) end = generator() % (cut.all.size() + 1);
  ends.back() = cut.all.size();
  std::sort(ends.begin(), ends.end());
  cut.head = ends[0];
  std::size_t place = 0;
  for (std::size_t i = 0; i < count; ++i) {
    place += 1 + generator() % 1000;
    cut.parts.push_back({place, std::span(cut.all).subspan(ends[i], ends[i + 1] - ends[i])});
  }
  if (count == 0) cut.head = cut.all.size();
  return cut;
}

}  // namespace

TEST(checksum_parts_may_come_in_any_order) {
  std::mt19937 generator(1);
  for (int repetition = 0; repetition < 200; ++repetition) {
    Parts cut = random_parts(static_cast<std::size_t>(repetition) % 9, generator);
    std::shuffle(cut.parts.begin(), cut.parts.end(), generator);
    ChecksumParts checksums(cut.parts.size());
    for (const Part& part : cut.parts) checksums.add(part.place, crc32c(part.bytes), part.bytes.size());
    CHECK(checksums.after(crc32c(std::span(cut.all).first(cut.head))) == crc32c(cut.all));
  }
}

TEST(checksum_parts_tell_the_order_of_the_bytes) {
  const std::vector<std::uint8_t> one = {1, 2, 3};
  const std::vector<std::uint8_t> two = {4, 5};
  const auto joined = [&](std::size_t place_of_one, std::size_t place_of_two) {
    ChecksumParts checksums(2);
    checksums.add(place_of_one, crc32c(one), one.size());
    checksums.add(place_of_two, crc32c(two), two.size());
    return checksums.after(crc32c({}));
  };
  CHECK(joined(0, 1) == crc32c(std::vector<std::uint8_t>{1, 2, 3, 4, 5}));
  CHECK(joined(7, 2) == crc32c(std::vector<std::uint8_t>{4, 5, 1, 2, 3}));
}

TEST(checksum_parts_come_from_several_threads) {
  std::mt19937 generator(2);
  const Parts cut = random_parts(64, generator);
  ChecksumParts checksums(cut.parts.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::size_t i = thread; i < cut.parts.size(); i += 4) {
          checksums.add(cut.parts[i].place, crc32c(cut.parts[i].bytes), cut.parts[i].bytes.size());
        }
      });
    }
  }
  CHECK(checksums.after(crc32c(std::span(cut.all).first(cut.head))) == crc32c(cut.all));
}

}  // namespace common_checksum_parts_tests
