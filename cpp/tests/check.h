// A test is a function; CHECK stops it at the first failure. Enough for tests that run without Python.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace shieldfl::tests {

struct Test {
  std::string
      name;  // "AREA_FILE.test", such as "mask_votes.votes_are_counted" for one in mask/test_votes.cpp
  std::function<void()> body;
};

// "AREA_FILE" of a test's source ".../AREA/test_FILE.cpp".
inline std::string file_group(std::string_view path) {
  const std::size_t file = path.find("/test_", path.find_last_of('/'));
  const std::string_view folder = path.substr(0, file);
  const std::string_view area = folder.substr(folder.find_last_of('/') + 1);
  const std::string_view name = path.substr(file + 6);
  return std::string(area) + "_" + std::string(name.substr(0, name.find_last_of('.')));
}

inline std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}

struct Registration {
  Registration(const char* file, const char* name, std::function<void()> body) {
    registry().push_back({file_group(file) + "." + name, std::move(body)});
  }
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  std::ostringstream message;
  message << file << ":" << line << ": " << what;
  throw std::runtime_error(message.str());
}

// Whether all that a test tries is tried, as the long form of the checks does (SHIELDFL_ALL_TRIALS).
inline bool all_are_tried() {
  return std::getenv("SHIELDFL_ALL_TRIALS") != nullptr;
}

// How often something random is tried: a fifth, where not all are.
inline int trials(int all) {
  return all_are_tried() ? all : all / 5;
}

// Whether a name begins with one of the prefixes, or there are none.
inline bool is_chosen(std::string_view name, const std::vector<std::string_view>& prefixes) {
  for (const std::string_view prefix : prefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return prefixes.empty();
}

// Runs the registered tests whose names begin with one of `prefixes`, all when there are none, and prints the
// processor's seconds that each took; returns the exit status. A choice of no test at all is a failure, so
// that no shard that is misspelt passes.
inline int run_tests(const std::vector<std::string_view>& prefixes) {
  std::size_t passed = 0;
  std::size_t failed = 0;
  for (const Test& test : registry()) {
    if (!is_chosen(test.name, prefixes)) continue;
    const std::clock_t start = std::clock();
    try {
      test.body();
      ++passed;
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      std::printf("ok    %6.2f s  %s\n", seconds, test.name.c_str());
    } catch (const std::exception& error) {
      ++failed;
      std::printf("FAIL  %s: %s\n", test.name.c_str(), error.what());
    }
  }
  std::printf("%zu passed, %zu failed\n", passed, failed);
  if (passed + failed == 0) std::printf("no test has a name that begins so\n");
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace shieldfl::tests

#define SHIELDFL_JOIN2(a, b) a##b
#define SHIELDFL_JOIN(a, b) SHIELDFL_JOIN2(a, b)
#define TEST(name)                                                                                     \
  static void name();                                                                                  \
  static const ::shieldfl::tests::Registration SHIELDFL_JOIN(registration_, __LINE__)(__FILE__, #name, \
                                                                                      name);           \
  static void name()
#define CHECK(condition) \
  if (!(condition)) ::shieldfl::tests::fail(__FILE__, __LINE__, "not true: " #condition)
#define CHECK_THROWS(expression, expected_code)                                                       \
  do {                                                                                                \
    bool threw = false;                                                                               \
    try {                                                                                             \
      (void)(expression);                                                                             \
    } catch (const ::shieldfl::Error& error) {                                                        \
      threw = true;                                                                                   \
      if (error.code() != (expected_code)) ::shieldfl::tests::fail(__FILE__, __LINE__, error.what()); \
    }                                                                                                 \
    if (!threw) ::shieldfl::tests::fail(__FILE__, __LINE__, "no error from: " #expression);           \
  } while (false)
