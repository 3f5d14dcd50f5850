// Splitting independent blocks over threads.
//
// Threads live for one call. Starting them costs tens of microseconds against the milliseconds of work that
// make it worth while, and in exchange there is no pool that a fork could leave without its threads. On a
// busy machine a thread may wait milliseconds for its turn, and its caller with it: who leaves the number
// open gets no more threads than the work is worth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace shieldfl {

// The cores that this process may run on (its affinity mask), at least 1.
std::size_t available_threads();

// 0 means available_threads(); larger requests than 1024 are an Error(kParameter).
std::size_t resolve_threads(std::size_t requested);

// The threads for `count` items: those requested. Where that is 0, all available ones, but no more than leave
// each at least `worth` items, of which it should take a quarter of a millisecond. At least 1. Errors as
// resolve_threads().
std::size_t threads_for(std::size_t requested, std::size_t count, std::size_t worth);

// How many threads parallel_for() has started in this process: what tests of the above look at.
std::uint64_t threads_started() noexcept;

// Calls body(begin, end) on disjoint ranges that cover [0, count), from up to `threads` threads (at least 1),
// each range a multiple of `grain` long but for the last. The calling thread takes part. The split depends on
// count, threads and grain alone. The first exception that a range threw is rethrown once all have ended;
// it throws nothing of its own once a range has begun.
void parallel_for(std::size_t count, std::size_t threads, std::size_t grain,
                  const std::function<void(std::size_t begin, std::size_t end)>& body);

}  // namespace shieldfl
