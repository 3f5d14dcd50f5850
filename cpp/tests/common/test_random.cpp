#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/check.h"

namespace common_random_tests {

using namespace shieldfl;

namespace {

std::string hex(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// `size` bytes of the key stream from block `first_block` on.
std::string key_stream(const Seed& seed, std::uint64_t stream_index, std::size_t first_block,
                       std::size_t size) {
  RandomStream stream(seed, stream_index);
  std::vector<std::uint8_t> bytes(64 * first_block + size);
  stream.fill(bytes);
  return hex(std::span(bytes).subspan(64 * first_block));
}

Seed seed_of(std::initializer_list<std::uint8_t> first_bytes) {
  Seed seed;
  std::copy(first_bytes.begin(), first_bytes.end(), seed.bytes.begin());
  return seed;
}

}  // namespace

TEST(random_stream_gives_the_vectors_of_rfc_8439) {
  // Appendix A.1, vectors 1 and 2: zero key and nonce, counters 0 and 1.
  CHECK(key_stream({}, 0, 0, 128) ==
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f");
  // Vector 3: the key's last byte is 1, counter 1.
  Seed last_byte_one;
  last_byte_one.bytes.back() = 1;
  CHECK(key_stream(last_byte_one, 0, 1, 64) ==
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0");
  // Vector 4: the key's second byte is 255, counter 2.
  CHECK(key_stream(seed_of({0, 0xff}), 0, 2, 64) ==
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096");
  // Vector 5: the nonce's last byte is 2, which is the top byte of our stream index.
  CHECK(key_stream({}, std::uint64_t{2} << 56, 0, 64) ==
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d");
  // Section 2.4.2: key 00 01 .. 1f, nonce 00 00 00 00 00 00 00 4a 00 00 00 00, counter 1.
  Seed ascending;
  for (std::size_t i = 0; i < kSeedBytes; ++i) ascending.bytes[i] = static_cast<std::uint8_t>(i);
  CHECK(key_stream(ascending, 0x4a000000, 1, 114) ==
        "224f51f3401bd9e12fde276fb8631ded8c131f823d2c06e27e4fcaec9ef3cf788a3b0aa372600a92"
        "b57974cded2b9334794cba40c63e34cdea212c4cf07d41b769a6749f3f630f4122cafe28ec4dc47e"
        "26d4346d70b98c73f3e9c53ac40c5945398b6eda1a832c89c167eacd901d7e2bf363");
}

TEST(random_stream_does_not_depend_on_how_it_is_read) {
  const Seed seed = seed_of({1, 2, 3});
  std::vector<std::uint8_t> whole(5000);
  RandomStream(seed, 7).fill(whole);
  for (const std::size_t step : {1, 3, 8, 63, 64, 65, 200, 4999}) {
    RandomStream stream(seed, 7);
    std::vector<std::uint8_t> parts(whole.size());
    for (std::size_t at = 0; at < parts.size(); at += step) {
      stream.fill(std::span(parts).subspan(at, std::min(step, parts.size() - at)));
    }
    CHECK(parts == whole);
  }
  RandomStream words(seed, 7);
  words.fill({});  // reads nothing
  for (std::size_t at = 0; at + 8 <= whole.size(); at += 8) {
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < 8; ++i) expected |= std::uint64_t{whole[at + i]} << (8 * i);
    CHECK(words.next_u64() == expected);
  }
}

TEST(random_stream_does_not_depend_on_mixed_reads) {
  const Seed seed = seed_of({4, 5});
  std::vector<std::uint8_t> whole(1 << 20);
  RandomStream(seed, 3).fill(whole);
  RandomStream choices(seed_of({6}), 0);
  for (int trial = 0; trial < 60; ++trial) {
    RandomStream stream(seed, 3);
    std::size_t at = 0;
    while (at + 3 * 8 * RandomStream::kMaxPeekWords < whole.size() / 8) {
      const std::uint64_t choice = choices.next_u64();
      const std::size_t size = static_cast<std::size_t>(choice >> 8) % ((choice & 1) != 0 ? 40 : 6000);
      switch ((choice >> 1) % 3) {
        case 0: {
          std::vector<std::uint8_t> bytes(size);
          stream.fill(bytes);
          CHECK(std::equal(bytes.begin(), bytes.end(), whole.begin() + static_cast<std::ptrdiff_t>(at)));
          at += size;
          break;
        }
        case 1: {
          const std::uint64_t word = stream.next_u64();
          CHECK(std::memcmp(&word, whole.data() + at, sizeof word) == 0);
          at += sizeof word;
          break;
        }
        default: {
          const std::size_t least = size % (RandomStream::kMaxPeekWords + 1);
          const auto words = stream.peek_words(least, (choice & 2) != 0 ? least : size);
          CHECK(words.size() >= least);
          CHECK(std::memcmp(words.data(), whole.data() + at, words.size_bytes()) == 0);
          const std::size_t consumed = words.empty() ? 0 : (choice >> 40) % (words.size() + 1);
          stream.consume_words(consumed);
          at += sizeof(std::uint64_t) * consumed;
        }
      }
    }
  }
}

TEST(random_stream_computes_what_is_wanted_and_little_more) {
  RandomStream stream(seed_of({7}), 0);
  CHECK(stream.peek_words(1, 1).size() == 8);  // a block
  stream.consume_words(1);
  CHECK(stream.peek_words(7, 100).size() == 7);  // there already
  CHECK(stream.peek_words(8, 8).size() == 15);
  CHECK(stream.peek_words(16, 100000).size() <= RandomStream::kMaxPeekWords + 128);
  CHECK(stream.peek_words(RandomStream::kMaxPeekWords, 0).size() >= RandomStream::kMaxPeekWords);
}

TEST(random_stream_begins_at_the_block_asked_for) {
  const Seed seed = seed_of({8});
  RandomStream stream(seed, 5, 3);
  std::vector<std::uint8_t> bytes(200);
  stream.fill(bytes);
  CHECK(hex(bytes) == key_stream(seed, 5, 3, 200));
}

TEST(random_stream_ends_after_2_to_the_32_blocks) {
  const Seed seed = seed_of({9});
  const std::uint32_t last_two = 0xfffffffe;
  std::vector<std::uint8_t> bytes(128);
  RandomStream at_once(seed, 0, last_two);
  std::vector<std::uint8_t> too_many(129, 0x5a);
  CHECK_THROWS(at_once.fill(too_many), ErrorCode::kInternal);
  CHECK(too_many == std::vector<std::uint8_t>(129, 0x5a));  // and nothing was consumed:
  at_once.fill(bytes);
  CHECK_THROWS(at_once.fill(std::span(too_many).first(1)), ErrorCode::kInternal);
  CHECK_THROWS(at_once.next_u64(), ErrorCode::kInternal);
  CHECK_THROWS(at_once.peek_words(1, 1), ErrorCode::kInternal);
  CHECK(at_once.peek_words(0, 1000).empty());

  RandomStream by_words(seed, 0, last_two);
  const auto words = by_words.peek_words(16, 1000);  // more is wanted than there is
  CHECK(words.size() == 16);
  CHECK(std::memcmp(words.data(), bytes.data(), bytes.size()) == 0);
  CHECK_THROWS(by_words.peek_words(17, 17), ErrorCode::kInternal);
  by_words.consume_words(15);
  std::uint64_t expected = 0;
  std::memcpy(&expected, bytes.data() + 120, sizeof expected);
  CHECK(by_words.next_u64() == expected);
  CHECK_THROWS(by_words.next_u64(), ErrorCode::kInternal);

  RandomStream by_bytes(seed, 0, last_two);
  for (const std::uint8_t byte : bytes) {
    std::uint8_t got = 0;
    by_bytes.fill({&got, 1});
    CHECK(got == byte);
  }
  CHECK_THROWS(by_bytes.fill(std::span(too_many).first(1)), ErrorCode::kInternal);
}

TEST(random_streams_of_one_seed_differ) {
  const Seed seed = seed_of({9});
  std::set<std::string> streams;
  for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2},
                                    std::uint64_t{1} << 31, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
    streams.insert(key_stream(seed, index, 0, 64));
  }
  CHECK(streams.size() == 6);
  CHECK(!streams.contains(key_stream(seed_of({10}), 0, 0, 64)));
}

TEST(insecure_test_random_is_its_documented_sequence) {
  InsecureTestRandom source(0x0807060504030201);
  InsecureTestRandom again(0x0807060504030201);
  for (std::uint8_t i = 0; i < 3; ++i) {
    Seed expected = seed_of({1, 2, 3, 4, 5, 6, 7, 8, i});
    CHECK(source.next().bytes == expected.bytes);
    CHECK(again.next().bytes == expected.bytes);
  }
}

TEST(system_seeds_are_distinct) {
  SystemSeedSource source;
  std::set<std::array<std::uint8_t, kSeedBytes>> seeds;
  std::set<std::array<std::uint8_t, 16>> ids;
  for (int i = 0; i < 200; ++i) {
    seeds.insert(source.next().bytes);
    ids.insert(random_id(source));
  }
  CHECK(seeds.size() == 200);
  CHECK(ids.size() == 200);
}

TEST(system_seeds_differ_after_fork) {
  SystemSeedSource source;
  (void)source.next();
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    const Seed seed = source.next();
    const auto written = write(ends[1], seed.bytes.data(), seed.bytes.size());
    _exit(written == static_cast<ssize_t>(seed.bytes.size()) ? 0 : 1);
  }
  Seed of_child;
  const auto got = read(ends[0], of_child.bytes.data(), of_child.bytes.size());
  int status = -1;
  waitpid(child, &status, 0);
  close(ends[0]);
  close(ends[1]);
  CHECK(got == static_cast<ssize_t>(of_child.bytes.size()));
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(source.next().bytes != of_child.bytes);
}

}  // namespace common_random_tests
