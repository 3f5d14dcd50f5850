#include <array>
#include <cstdint>

#include "common/random.h"
#include "enrolled/context.h"
#include "kahe/frame_secret.h"
#include "ring/sampler.h"
#include "tests/constant_time/operations.h"

namespace shieldfl::tests {
namespace {

std::vector<std::uint64_t> secret_words(int variant) {
  std::mt19937_64 generator = secrets_of(variant);
  std::vector<std::uint64_t> words(64);
  for (std::uint64_t& word : words) word = generator();
  return as_secret(words);
}

// Stores to a volatile variable keep the compiler from turning the branch into arithmetic.
[[gnu::noinline]] void branch_on(const std::vector<std::uint64_t>& secrets) {
  volatile std::uint64_t taken = 0;
  for (const std::uint64_t secret : secrets) {
    if ((secret >> 63) != 0) taken = taken + 1;
  }
}

[[gnu::noinline]] void look_up_by(const std::vector<std::uint64_t>& secrets,
                                  const std::array<std::uint8_t, 256>& table) {
  std::uint64_t sum = 0;
  for (const std::uint64_t secret : secrets) sum += table[secret & 255];
  keep(sum);
}

[[gnu::noinline]] void divide(const std::vector<std::uint64_t>& secrets, std::uint64_t divisor) {
  std::uint64_t sum = 0;
  for (const std::uint64_t secret : secrets) sum += secret / divisor;
  keep(sum);
}

}  // namespace

SecretOperation leaking_branch() {
  return {"a branch on a secret, to be found",
          [](int variant) { return [secrets = secret_words(variant)] { branch_on(secrets); }; }};
}

SecretOperation leaking_sample() {
  return {"a branch on a sample, to be found", [](int) {
            const Seed seed = InsecureTestRandom(1).next();
            mark_secret(seed.bytes.data(), seed.bytes.size());
            return [seed, samples = std::vector<std::int8_t>(64)]() mutable {
              RandomStream stream(seed, 0);
              ring::sample_ternary(stream, samples);
              branch_on({samples.begin(), samples.end()});
            };
          }};
}

SecretOperation leaking_frame_secret() {
  return {"a branch on the one-time secret that a client's key gives, to be found", [](int variant) {
            Seed shared;
            shared.bytes.fill(static_cast<std::uint8_t>(variant + 1));
            mark_secret(shared.bytes.data(), shared.bytes.size());
            return [shared, samples = std::vector<std::int8_t>(64),
                    scratch = std::vector<std::int8_t>(64)]() mutable {
              const auto key = enrolled::ClientKey::of_session("kahe", shared, Id{}, 1);
              kahe::sample_secret(enrolled::frame_seed(key, {}, Id{}), 0, samples, scratch);
              branch_on({samples.begin(), samples.end()});
            };
          }};
}

SecretOperation leaking_look_up() {
  return {"a look-up by a secret, to be found", [](int variant) {
            return [secrets = secret_words(variant), table = std::array<std::uint8_t, 256>{1}] {
              look_up_by(secrets, table);
            };
          }};
}

SecretOperation leaking_division() {
  return {"a division of a secret, to be found", [](int variant) {
            return [secrets = secret_words(variant)] {
              volatile std::uint64_t divisor = 12289;  // unknown to the compiler
              divide(secrets, divisor);
            };
          }};
}

}  // namespace shieldfl::tests
