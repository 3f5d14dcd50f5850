// A test is a function; CHECK stops it at the first failure. Enough for tests that run without Python.
#pragma once

#include <cstdio>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/error.h"

namespace shieldfl::tests {

struct Test {
  const char* name;
  std::function<void()> body;
};

inline std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}

struct Registration {
  Registration(const char* name, std::function<void()> body) {
    registry().push_back({name, std::move(body)});
  }
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  std::ostringstream message;
  message << file << ":" << line << ": " << what;
  throw std::runtime_error(message.str());
}

// Runs every registered test; returns the exit status.
inline int run_all() {
  int failed = 0;
  for (const Test& test : registry()) {
    try {
      test.body();
      std::printf("ok    %s\n", test.name);
    } catch (const std::exception& error) {
      ++failed;
      std::printf("FAIL  %s: %s\n", test.name, error.what());
    }
  }
  std::printf("%zu passed, %d failed\n", registry().size() - static_cast<std::size_t>(failed), failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace shieldfl::tests

#define SHIELDFL_JOIN2(a, b) a##b
#define SHIELDFL_JOIN(a, b) SHIELDFL_JOIN2(a, b)
#define TEST(name)                                                                                  \
  static void name();                                                                               \
  static const ::shieldfl::tests::Registration SHIELDFL_JOIN(registration_, __LINE__)(#name, name); \
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
