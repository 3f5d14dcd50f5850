#include "paillier/randomizer_pool.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "common/error.h"
#include "paillier/pool_state.h"
#include "paillier/randomizers.h"
#include "parallel/parallel_for.h"

namespace shieldfl::paillier {

RandomizerPool::RandomizerPool(std::shared_ptr<const PublicKey> key)
    : state_(std::make_shared<PoolState>(std::move(key))) {
  register_for_fork(state_.get());
}

RandomizerPool::~RandomizerPool() {
  {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->wait(lock, [&] { return state_->threads == 0; });
    state_->batches.clear();
  }
  unregister_for_fork(state_.get());
}

void RandomizerPool::precompute(std::size_t count, std::size_t threads, bool lookups_vartime) {
  threads = resolve_threads(threads);
  if (count == 0) return;
  const std::lock_guard lock(state_->mutex);
  const std::size_t room = kMaxEntries - state_->available - state_->pending();
  if (count > room) {
    throw Error(ErrorCode::kParameter, "a pool holds at most " + std::to_string(kMaxEntries) +
                                           " randomisers: there is room for " + std::to_string(room) +
                                           " more");
  }
  state_->requests.push_back({count, lookups_vartime});
  const std::size_t batch = randomizers_at_once(*state_->key);
  threads = std::min(threads, (state_->pending() + batch - 1) / batch);
  try {
    for (; state_->threads < threads; ++state_->threads) {
      std::thread([state = state_] { fill_pool(*state); }).detach();
    }
  } catch (const std::exception&) {  // no thread, or no memory for one: those that run do the work
    if (state_->threads == 0) {
      state_->forget_requests();
      throw Error(ErrorCode::kInternal, "the system gave no thread to make randomisers on");
    }
  }
}

void RandomizerPool::wait() {
  std::unique_lock lock(state_->mutex);
  state_->wait(lock, [&] { return state_->pending() == 0; });
  if (state_->failure) std::rethrow_exception(std::exchange(state_->failure, nullptr));
}

const Id& RandomizerPool::key_id() const {
  return state_->key->id();
}

std::size_t RandomizerPool::available() const {
  const std::lock_guard lock(state_->mutex);
  return state_->available;
}

std::size_t RandomizerPool::take(std::span<std::uint64_t> pairs) {
  const std::size_t words = state_->key->engine().pair_words();
  const std::lock_guard lock(state_->mutex);
  const std::size_t taken = std::min(pairs.size() / words, state_->available);
  for (std::size_t left = taken * words; left > 0;) {
    SecretVector<std::uint64_t>& batch = state_->batches.back();
    const std::size_t moved = std::min(left, batch.size());
    const auto from = batch.end() - static_cast<std::ptrdiff_t>(moved);
    left -= moved;
    std::copy(from, batch.end(), pairs.begin() + static_cast<std::ptrdiff_t>(left));
    secure_wipe(&*from, moved * sizeof(std::uint64_t));
    batch.resize(batch.size() - moved);
    if (batch.empty()) state_->batches.pop_back();
  }
  state_->available -= taken;
  return taken;
}

}  // namespace shieldfl::paillier
