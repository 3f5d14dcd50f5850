// Splitting independent blocks over threads.
//
// Threads live for one call. Starting them costs tens of microseconds against the milliseconds of work that
// make it worth while, and in exchange there is no pool that a fork could leave without its threads.
#pragma once

#include <cstddef>
#include <functional>

namespace shieldfl {

// The cores that this process may run on (its affinity mask), at least 1.
std::size_t available_threads();

// 0 means available_threads(); larger requests than 1024 are an Error(kParameter).
std::size_t resolve_threads(std::size_t requested);

// Calls body(begin, end) on disjoint ranges that cover [0, count), from up to `threads` threads (at least 1),
// each range a multiple of `grain` long but for the last. The calling thread takes part. The split depends on
// count, threads and grain alone. The first exception that a range threw is rethrown once all have ended;
// it throws nothing of its own once a range has begun.
void parallel_for(std::size_t count, std::size_t threads, std::size_t grain,
                  const std::function<void(std::size_t begin, std::size_t end)>& body);

}  // namespace shieldfl
