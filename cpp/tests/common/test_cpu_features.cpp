#include <algorithm>
#include <cstdlib>
#include <string>

#include "common/cpu_features.h"
#include "tests/check.h"

namespace common_cpu_features_tests {

using namespace shieldfl;

namespace {

bool is_supported(InstructionSet set) {
  const auto sets = supported_instruction_sets();
  return std::find(sets.begin(), sets.end(), set) != sets.end();
}

std::string message_for(const char* requested) {
  try {
    (void)choose_instruction_set(requested);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kParameter);
    return error.what();
  }
  return "";
}

}  // namespace

TEST(instruction_sets_have_the_names_that_users_write) {
  CHECK(instruction_set_name(InstructionSet::kScalar) == std::string("scalar"));
  CHECK(instruction_set_name(InstructionSet::kNeon) == std::string("neon"));
  CHECK(instruction_set_name(InstructionSet::kAvx2) == std::string("avx2"));
  CHECK(instruction_set_name(InstructionSet::kAvx512) == std::string("avx512"));
}

TEST(an_instruction_set_is_chosen_by_its_name) {
  const InstructionSet best = best_instruction_set();
  CHECK(choose_instruction_set(nullptr) == best);
  CHECK(choose_instruction_set("") == best);
  CHECK(choose_instruction_set("scalar") == InstructionSet::kScalar);
  for (const InstructionSet set : all_instruction_sets()) {
    const char* name = instruction_set_name(set);
    if (is_supported(set)) {
      CHECK(choose_instruction_set(name) == set);
    } else {
      // The message tells what was asked for and what there is.
      CHECK(message_for(name).find(name) != std::string::npos);
      CHECK(message_for(name).find(instruction_set_name(best)) != std::string::npos);
    }
  }
}

// So that a build without its vector kernels is found out.
TEST(every_processor_has_scalar_and_64_bit_arm_has_neon) {
  CHECK(supported_instruction_sets().front() == InstructionSet::kScalar);
  CHECK(supported_instruction_sets().back() == best_instruction_set());
#ifdef __aarch64__
  CHECK(best_instruction_set() == InstructionSet::kNeon);
#else
  CHECK(!is_supported(InstructionSet::kNeon));
#endif
}

TEST(unknown_instruction_sets_are_refused) {
  for (const char* name : {"avx", "AVX2", "avx2 ", " scalar", "avx5121", "sse4.2", "asimd", "0", "best"}) {
    const std::string message = message_for(name);
    for (const InstructionSet set : all_instruction_sets()) {
      CHECK(message.find(instruction_set_name(set)) != std::string::npos);
    }
  }
}

TEST(the_set_in_use_is_the_one_that_the_environment_names) {
  CHECK(instruction_set() == choose_instruction_set(std::getenv("SHIELDFL_SIMD")));
  CHECK(is_supported(instruction_set()));
}

}  // namespace common_cpu_features_tests
