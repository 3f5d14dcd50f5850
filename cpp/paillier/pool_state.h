// What a pool and its background threads share, and what becomes of it in a child process after fork.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "common/secure_memory.h"
#include "paillier/keys.h"

namespace shieldfl::paillier {

// All below `mutex` is guarded by it. Threads are detached and counted, not joined: in a child process there
// would be nothing to join.
class PoolState {
 public:
  explicit PoolState(std::shared_ptr<const PublicKey> public_key) : key(std::move(public_key)) {}

  struct Request {
    std::size_t count;
    bool lookups_vartime;
  };

  // Asked for and not ready.
  [[nodiscard]] std::size_t pending() const;
  // The next part of what was asked for, at most `most`; its count is 0 when there is nothing to do. The
  // caller counts it as being made.
  Request claim(std::size_t most);
  void forget_requests() { requests.clear(); }

  // Waits for a change after which `done` holds; `lock` holds `mutex`. By the hour, because
  // std::condition_variable::wait is the one function of the C++ library that this core would need of GCC 12:
  // a wheel without it runs where that library is older. wait_for is compiled from its header.
  template <typename Done>
  void wait(std::unique_lock<std::mutex>& lock, Done done) {
    while (!done()) changed.wait_for(lock, std::chrono::hours(1));
  }

  // In a child process, with `mutex` held: there are no threads, and every entry is the parent's.
  void restart_in_child();

  const std::shared_ptr<const PublicKey> key;
  std::mutex preparation;  // held by the thread that prepares the key, under no other lock
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Request> requests;
  std::size_t in_work = 0;  // of randomisers that threads are making
  std::size_t threads = 0;  // that run
  bool stopping = false;
  std::exception_ptr failure;
  std::vector<SecretVector<std::uint64_t>> batches;  // pairs, ready to be used
  std::size_t available = 0;                         // randomisers in `batches`
};

// Makes randomisers until everything that was asked for is there, or the pool is stopping: a background
// thread's work.
void fill_pool(PoolState& state);

// A state has to be registered as long as its pool lives: a fork then finds it in order.
void register_for_fork(PoolState* state);
void unregister_for_fork(PoolState* state);

}  // namespace shieldfl::paillier
