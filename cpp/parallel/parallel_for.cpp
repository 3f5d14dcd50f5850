#include "parallel/parallel_for.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "common/error.h"

namespace shieldfl {
namespace {

std::atomic<std::uint64_t> started_count = 0;

}  // namespace

std::size_t available_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&allowed)));
}

std::size_t resolve_threads(std::size_t requested) {
  constexpr std::size_t kMaxThreads = 1024;
  if (requested > kMaxThreads) throw Error(ErrorCode::kParameter, "threads must be between 1 and 1024");
  return requested == 0 ? available_threads() : requested;
}

std::size_t threads_for(std::size_t requested, std::size_t count, std::size_t worth) {
  const std::size_t threads = resolve_threads(requested);
  if (requested != 0) return threads;
  return std::clamp<std::size_t>(count / std::max<std::size_t>(worth, 1), 1, threads);
}

std::uint64_t threads_started() noexcept {
  return started_count;
}

void parallel_for(std::size_t count, std::size_t threads, std::size_t grain,
                  const std::function<void(std::size_t, std::size_t)>& body) {
  if (count == 0) return;
  grain = std::max<std::size_t>(grain, 1);
  const std::size_t grains = (count + grain - 1) / grain;
  threads = std::clamp<std::size_t>(threads, 1, grains);
  if (threads == 1) {
    body(0, count);
    return;
  }

  std::mutex error_mutex;
  std::exception_ptr first_error;
  const auto run = [&](std::size_t part) {
    const std::size_t begin = grains * part / threads * grain;
    const std::size_t end = std::min(count, grains * (part + 1) / threads * grain);
    try {
      body(begin, end);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!first_error) first_error = std::current_exception();
    }
  };

  std::vector<std::jthread> workers;
  workers.reserve(threads - 1);
  std::size_t part = 1;
  try {
    for (; part < threads; ++part) {
      workers.emplace_back(run, part);
      ++started_count;
    }
  } catch (const std::exception&) {
    // The system gives no more threads, or no memory for one: do the rest here.
    for (; part < threads; ++part) run(part);
  }
  run(0);
  workers.clear();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace shieldfl
