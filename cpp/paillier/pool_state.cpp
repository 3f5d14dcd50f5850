#include "paillier/pool_state.h"

#include <pthread.h>

#include <algorithm>
#include <new>
#include <utility>

#include "common/error.h"
#include "common/random.h"
#include "paillier/randomizers.h"

namespace shieldfl::paillier {
namespace {

// The states of all pools. A fork waits until none of them is being changed, so that the child finds every
// one whole.
struct LivePools {
  std::mutex mutex;
  std::vector<PoolState*> states;
};

// Never destroyed: a fork may come when the program is ending.
LivePools& live_pools() {
  static auto* const pools = new LivePools;
  return *pools;
}

void before_fork() {
  live_pools().mutex.lock();
  for (PoolState* const state : live_pools().states) state->mutex.lock();
}

void after_fork_in_parent() {
  for (PoolState* const state : live_pools().states) state->mutex.unlock();
  live_pools().mutex.unlock();
}

void after_fork_in_child() {
  for (PoolState* const state : live_pools().states) state->restart_in_child();
  after_fork_in_parent();
}

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
      throw Error(ErrorCode::kInternal, "the system has no memory for what a pool does at a fork");
    }
  });
}

}  // namespace

std::size_t PoolState::pending() const {
  std::size_t count = in_work;
  for (const Request& request : requests) count += request.count;
  return count;
}

PoolState::Request PoolState::claim(std::size_t most) {
  if (stopping || requests.empty()) return {0, false};
  Request& next = requests.front();
  const Request claimed = {std::min(most, next.count), next.lookups_vartime};
  next.count -= claimed.count;
  if (next.count == 0) requests.pop_front();
  in_work += claimed.count;
  return claimed;
}

void PoolState::restart_in_child() {
  batches.clear();
  available = 0;
  requests.clear();
  in_work = 0;
  threads = 0;
  failure = nullptr;
  // The old ones may be as threads of the parent had left them, which will never come back: locked, and
  // waited on by somebody, so that destroying them would have to wait.
  ::new (static_cast<void*>(&preparation)) std::mutex;
  ::new (static_cast<void*>(&changed)) std::condition_variable;
}

void fill_pool(PoolState& state) {
  const Engine& engine = state.key->engine();
  SystemSeedSource seeds;
  std::unique_lock lock(state.mutex);
  while (true) {
    const PoolState::Request claimed = state.claim(randomizers_at_once(*state.key));
    if (claimed.count == 0) break;
    lock.unlock();
    std::exception_ptr failure;
    SecretVector<std::uint64_t> pairs;
    try {
      {
        const std::lock_guard preparing(state.preparation);
        prepare_randomizers(*state.key);
      }
      pairs.resize(claimed.count * engine.pair_words());
      make_randomizers(*state.key, seeds.next(), 0, claimed.lookups_vartime, pairs);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    try {
      if (!failure) state.batches.push_back(std::move(pairs));
    } catch (...) {
      failure = std::current_exception();
    }
    state.in_work -= claimed.count;
    if (failure) {
      state.failure = failure;
      state.forget_requests();
    } else {
      state.available += claimed.count;
    }
    state.changed.notify_all();
  }
  --state.threads;
  state.changed.notify_all();
}

void register_for_fork(PoolState* state) {
  watch_forks();
  const std::lock_guard lock(live_pools().mutex);
  live_pools().states.push_back(state);
}

void unregister_for_fork(PoolState* state) {
  const std::lock_guard lock(live_pools().mutex);
  std::erase(live_pools().states, state);
}

}  // namespace shieldfl::paillier
