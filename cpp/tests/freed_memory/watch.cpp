#include "tests/freed_memory/watch.h"

#include <malloc.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>

namespace {

// What operator delete sees. It takes its memory from malloc itself: nothing here may call what it watches.
class Recorder {
 public:
  void start() {
    const std::lock_guard lock(mutex_);
    used_ = 0;
    watching_ = true;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    watching_ = false;
  }
  void record(const void* data, std::size_t size) {
    if (!watching_) return;
    const std::lock_guard lock(mutex_);
    if (!watching_) return;
    if (used_ + size > capacity_) {
      capacity_ = 2 * (used_ + size);
      bytes_ = static_cast<std::uint8_t*>(std::realloc(bytes_, capacity_));
      if (bytes_ == nullptr) std::abort();
    }
    std::memcpy(bytes_ + used_, data, size);
    used_ += size;
  }
  [[nodiscard]] const std::uint8_t* begin() const { return bytes_; }
  [[nodiscard]] const std::uint8_t* end() const { return bytes_ + used_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> watching_ = false;
  std::uint8_t* bytes_ = nullptr;
  std::size_t used_ = 0;
  std::size_t capacity_ = 0;
};

constinit Recorder recorder;

void* allocate(std::size_t size, std::size_t alignment) {
  void* data = nullptr;
  if (posix_memalign(&data, alignment, size) != 0) throw std::bad_alloc();
  std::memset(data, 0, malloc_usable_size(data));
  return data;
}

void give_back(void* data) {
  if (data == nullptr) return;
  recorder.record(data, malloc_usable_size(data));
  std::free(data);
}

constexpr std::size_t kUsual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

// These stand in for the library's; its other forms call them.
void* operator new(std::size_t size) {
  return allocate(size, kUsual);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept {
  give_back(data);
}
void operator delete(void* data, std::size_t) noexcept {
  give_back(data);
}
void operator delete(void* data, std::align_val_t) noexcept {
  give_back(data);
}
void operator delete(void* data, std::size_t, std::align_val_t) noexcept {
  give_back(data);
}

namespace shieldfl::tests {
namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 20;

struct Run {
  const std::function<void()>& operation;
  std::exception_ptr error;
};

void* run(void* given) {
  auto* self = static_cast<Run*>(given);
  try {
    self->operation();
  } catch (...) {
    self->error = std::current_exception();
  }
  return nullptr;
}

}  // namespace

Remains remains_of(const std::function<void()>& operation) {
  const std::unique_ptr<void, decltype(&std::free)> stack(std::aligned_alloc(4096, kStackBytes), &std::free);
  if (!stack) throw std::bad_alloc();
  std::memset(stack.get(), 0, kStackBytes);
  Run own{operation, nullptr};
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack.get(), kStackBytes);
  recorder.start();
  const int failed = pthread_create(&thread, &attributes, run, &own);
  if (failed == 0) pthread_join(thread, nullptr);
  recorder.stop();
  pthread_attr_destroy(&attributes);
  if (failed != 0) throw std::runtime_error("no thread could be started");
  if (own.error) std::rethrow_exception(own.error);
  const auto* const bytes = static_cast<const std::uint8_t*>(stack.get());
  return {{recorder.begin(), recorder.end()}, {bytes, bytes + kStackBytes}};
}

}  // namespace shieldfl::tests
