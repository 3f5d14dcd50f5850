// Contracts of kernels as checks: ranges, lengths and alignments that every caller keeps and that a kernel
// relies on without looking. Wrong input from outside is an Error, in every build; this is for what only a
// mistake in the core itself can break.
//
// VERIFY(condition) ends the process where the condition does not hold, in a build with the CMake option
// SHIELDFL_VERIFY (`make test-verify`). In all others it is compiled, so that it stays true to the code, but
// never evaluated: what ships has no trace of it. Conditions look at secrets, and branch on them: a build
// with these checks is for tests alone.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef SHIELDFL_VERIFY
#define VERIFY(...) \
  ((__VA_ARGS__) ? static_cast<void>(0) : ::shieldfl::contract_violated(__FILE__, __LINE__, #__VA_ARGS__))
#else
#define VERIFY(...) static_cast<void>(sizeof((__VA_ARGS__) ? 1 : 0))
#endif

namespace shieldfl {

// What conditions are made of. No bodies and no templates: kernels for one instruction set include this too,
// and share no code with others.

[[noreturn]] void contract_violated(const char* file, int line, const char* condition);

// Whether every value is below `bound`.
bool all_below(const std::uint64_t* values, std::size_t count, std::uint64_t bound);
// Whether no value is above `most` in magnitude.
bool all_within(const std::int64_t* values, std::size_t count, std::int64_t most);
// Whether left < right, two little-endian numbers of `words` words.
bool is_below(const std::uint64_t* left, const std::uint64_t* right, std::size_t words);
bool is_aligned(const void* memory, std::size_t bytes);
// Whether two stretches of memory share a byte.
bool overlap(const void* left, std::size_t left_bytes, const void* right, std::size_t right_bytes);

}  // namespace shieldfl
