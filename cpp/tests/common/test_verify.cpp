#include <cstdint>
#include <functional>
#include <vector>

#include "common/verify.h"
#include "ring/bit_packing.h"
#include "ring/modulus.h"
#include "ring/ntt.h"
#include "tests/check.h"

#ifdef SHIELDFL_VERIFY
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#endif

namespace common_verify_tests {

using namespace shieldfl;

#ifdef SHIELDFL_VERIFY

namespace {

// Whether a process that does this ends by abort(), without a word.
bool ends_the_process(const std::function<void()>& call) {
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
    call();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace

TEST(a_violated_contract_ends_the_process) {
  constexpr std::uint64_t kPrime = 65537;
  const ring::Ntt ntt(64, ring::Modulus(kPrime));
  const auto transform = [&](std::uint64_t value, std::size_t length) {
    return [&ntt, row = std::vector<std::uint64_t>(length, value)]() mutable { ntt.forward(row); };
  };
  CHECK(!ends_the_process(transform(kPrime - 1, 64)));
  CHECK(ends_the_process(transform(kPrime, 64)));
  CHECK(ends_the_process(transform(0, 63)));
  const auto pack = [](std::uint64_t value, std::size_t bytes) {
    return [=] {
      std::vector<std::uint8_t> out(bytes);
      ring::pack_residues(std::vector<std::uint64_t>(8, value), {.bits = 10, .dropped_bits = 0}, out);
    };
  };
  CHECK(!ends_the_process(pack(1023, 10)));
  CHECK(ends_the_process(pack(1024, 10)));
  CHECK(ends_the_process(pack(1023, 9)));
  CHECK(!ends_the_process([] { (void)ring::subtract_if_above(13, 7); }));
  CHECK(ends_the_process([] { (void)ring::subtract_if_above(14, 7); }));
}

#else

TEST(a_contract_costs_nothing_in_what_ships) {
  int evaluated = 0;
  VERIFY(++evaluated == 0);
  CHECK(evaluated == 0);
}

#endif

TEST(conditions_of_contracts_hold_up_to_their_bounds) {
  const std::vector<std::uint64_t> values = {0, 7, 3};
  CHECK(all_below(values.data(), 3, 8) && !all_below(values.data(), 3, 7) && all_below(nullptr, 0, 0));
  const std::vector<std::int64_t> signs = {-3, 2};
  CHECK(all_within(signs.data(), 2, 3) && !all_within(signs.data(), 2, 2));
  const std::vector<std::uint64_t> low = {9, 1};
  const std::vector<std::uint64_t> high = {0, 2};
  CHECK(is_below(low.data(), high.data(), 2) && !is_below(high.data(), low.data(), 2));
  CHECK(!is_below(low.data(), low.data(), 2));
  CHECK(overlap(values.data(), 9, values.data() + 1, 1) && !overlap(values.data(), 8, values.data() + 1, 1));
  alignas(64) const std::uint64_t aligned[2] = {};
  CHECK(is_aligned(aligned, 64) && !is_aligned(aligned + 1, 64));
}

}  // namespace common_verify_tests
