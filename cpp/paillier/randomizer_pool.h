// Precomputed randomisers, on threads of their own, while a model trains: encryption then costs two
// products.
//
// Each is used once and wiped. A child process after fork finds the pool empty, and can fill it anew: what
// parent and child both used would show the difference of their plaintexts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "paillier/keys.h"

namespace shieldfl::paillier {

class PoolState;

// Any number of threads may use a pool at once.
class RandomizerPool {
 public:
  explicit RandomizerPool(std::shared_ptr<const PublicKey> key);
  // Stops the threads, waits for the batches they are working on, and wipes what is left.
  ~RandomizerPool();
  RandomizerPool(const RandomizerPool&) = delete;
  RandomizerPool& operator=(const RandomizerPool&) = delete;

  static constexpr std::size_t kMaxEntries = std::size_t{1} << 24;

  // Asks for `count` more, made on up to `threads` threads (0: all cores); returns at once. Throws
  // Error(kParameter) when the pool would then hold more than kMaxEntries, Error(kInternal) when the system
  // gives no thread.
  void precompute(std::size_t count, std::size_t threads, bool lookups_vartime);
  // Waits until everything that was asked for is there. Rethrows what a background thread failed with; what
  // was asked for and not made by then is forgotten, and the pool can be used on.
  void wait();
  [[nodiscard]] const Id& key_id() const;
  [[nodiscard]] std::size_t available() const;  // ready to be used

  // Moves as many as there are, at most pairs.size() / pair_words(), to the front of `pairs`, wipes them
  // here, and returns how many.
  std::size_t take(std::span<std::uint64_t> pairs);

 private:
  // Shared with the background threads.
  std::shared_ptr<PoolState> state_;
};

}  // namespace shieldfl::paillier
