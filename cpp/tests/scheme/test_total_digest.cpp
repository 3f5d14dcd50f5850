#include <cstdint>
#include <span>
#include <vector>

#include "parallel/parallel_for.h"
#include "scheme/total_digest.h"
#include "tests/check.h"

namespace scheme_total_digest_tests {

using namespace shieldfl;
using scheme::kTotalLeafBytes;
using scheme::total_digest;

namespace {

std::vector<std::uint8_t> frame_of(std::size_t bytes) {
  std::vector<std::uint8_t> frame(bytes);
  for (std::size_t i = 0; i < bytes; ++i) frame[i] = static_cast<std::uint8_t>(i * i >> 7);
  return frame;
}

}  // namespace

TEST(a_digest_of_a_total_depends_on_every_byte_and_on_the_length) {
  for (const std::size_t bytes : {std::size_t{1}, kTotalLeafBytes, 11 * kTotalLeafBytes + 5}) {
    const auto frame = frame_of(bytes);
    const Digest digest = total_digest(frame, 1);
    for (std::size_t at = 0; at < bytes; at += 1 + bytes / 97) {
      auto altered = frame;
      altered[at] ^= 0x10;
      CHECK(total_digest(altered, 1) != digest);
    }
    auto longer = frame;
    longer.push_back(0);
    CHECK(total_digest(longer, 1) != digest);
    CHECK(total_digest(std::span(frame).first(bytes - 1), 1) != digest);
  }
}

TEST(leaves_of_a_total_do_not_change_places) {
  const auto frame = frame_of(3 * kTotalLeafBytes);
  auto turned = frame;
  std::swap_ranges(turned.begin(), turned.begin() + kTotalLeafBytes, turned.begin() + kTotalLeafBytes);
  CHECK(total_digest(turned, 1) != total_digest(frame, 1));
}

TEST(a_digest_of_a_total_does_not_depend_on_the_number_of_threads) {
  const auto frame = frame_of(83 * kTotalLeafBytes + 77);
  const Digest digest = total_digest(frame, 1);
  const auto before = threads_started();
  for (const std::size_t threads : {2u, 3u, 7u}) CHECK(total_digest(frame, threads) == digest);
  CHECK(threads_started() - before == 1 + 2 + 6);
}

}  // namespace scheme_total_digest_tests
