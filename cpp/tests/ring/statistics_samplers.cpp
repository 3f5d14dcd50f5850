// sampler_statistics [draws]: the two samplers against their exact distributions, and samplers that are a
// little off, which have to be found out. Seeds are fixed, so the outcome is the same in every run.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ring/sampler.h"
#include "tests/ring/sampler_statistics.h"

using namespace shieldfl;
using namespace shieldfl::tests;

namespace {

constexpr std::size_t kLeastDraws = 1'000'000;

using Sampler = void (*)(RandomStream&, std::span<std::int8_t>);

// Six random bits modulo 3: 0 comes up in 22 of 64 cases, 1 and 2 in 21.
void ternary_by_modulo(RandomStream& stream, std::span<std::int8_t> out) {
  for (std::int8_t& x : out) x = static_cast<std::int8_t>(static_cast<int>((stream.next_u64() & 63) % 3) - 1);
}

// The right distribution, but every 64th sample repeats the one before.
void ternary_with_repeats(RandomStream& stream, std::span<std::int8_t> out) {
  ring::sample_ternary(stream, out);
  for (std::size_t i = 63; i < out.size(); i += 64) out[i] = out[i - 1];
}

// Errors of 16 words as ring::sample_error draws them, but with fields of `coins` bits every `step` bits.
template <int coins, int step>
void errors_of_fields(RandomStream& stream, std::span<std::int8_t> out) {
  constexpr std::uint64_t kField = (std::uint64_t{1} << coins) - 1;
  for (std::size_t group = 0; group < out.size(); group += ring::kErrorGroupSamples) {
    std::array<std::uint64_t, ring::kErrorGroupWords> words;
    for (std::uint64_t& word : words) word = stream.next_u64();
    const std::size_t count = std::min(out.size() - group, ring::kErrorGroupSamples);
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t shift = step * (k / 8);
      const int plus = std::popcount((words[k % 8] >> shift) & kField);
      out[group + k] = static_cast<std::int8_t>(plus - std::popcount((words[8 + k % 8] >> shift) & kField));
    }
  }
}

constexpr auto errors_without_a_coin = errors_of_fields<ring::kErrorCoins - 1, ring::kErrorCoins>;
constexpr auto errors_sharing_a_coin = errors_of_fields<ring::kErrorCoins, ring::kErrorCoins - 1>;

struct Case {
  const char* name;
  Sampler sampler;
  Distribution distribution;
  bool honest;
};

std::vector<Verdict> judge(const Case& drawn, std::uint64_t seed, std::size_t draws) {
  constexpr std::size_t kRun = 1 << 20;
  SamplerStatistics statistics(drawn.distribution);
  std::vector<std::int8_t> samples(std::min(draws, kRun));
  const Seed key = InsecureTestRandom(seed).next();
  for (std::size_t done = 0; done < draws; done += kRun) {
    RandomStream stream(key, done / kRun);
    const auto run = std::span(samples).first(std::min(kRun, draws - done));
    drawn.sampler(stream, run);
    statistics.add(run);
  }
  return statistics.verdicts();
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t draws = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : kLeastDraws;
  if (argc > 2 || draws < kLeastDraws) {
    std::fprintf(stderr, "usage: sampler_statistics [draws], at least %zu\n", kLeastDraws);
    return 2;
  }
  const std::vector<Case> cases = {
      {"ternary", ring::sample_ternary, ternary_distribution(), true},
      {"error", ring::sample_error, error_distribution(), true},
      {"ternary, by modulo", ternary_by_modulo, ternary_distribution(), false},
      {"ternary, some repeated", ternary_with_repeats, ternary_distribution(), false},
      {"error, 20 coins for 21", errors_without_a_coin, error_distribution(), false},
      {"error, coins shared", errors_sharing_a_coin, error_distribution(), false},
  };
  bool as_expected = true;
  std::size_t honest_verdicts = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& drawn = cases[i];
    const auto verdicts = judge(drawn, 80 + i, draws);
    const bool passed =
        std::all_of(verdicts.begin(), verdicts.end(), [](const Verdict& v) { return v.passed(); });
    as_expected = as_expected && passed == drawn.honest;
    if (drawn.honest) honest_verdicts += verdicts.size();
    std::printf("%s, %zu draws: %s, which is %s\n", drawn.name, draws, passed ? "accepted" : "rejected",
                passed == drawn.honest ? "right" : "WRONG");
    for (const Verdict& verdict : verdicts) {
      if (!drawn.honest && verdict.passed()) continue;
      std::printf("  %-32s %12.3f, limit %9.3f%s\n", verdict.name.c_str(), verdict.value, verdict.limit,
                  verdict.passed() ? "" : "  exceeded");
    }
  }
  std::printf("honest samplers fail with probability at most %.1e\n",
              static_cast<double>(honest_verdicts) * kFailure);
  return as_expected ? 0 : 1;
}
