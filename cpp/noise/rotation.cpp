#include "noise/rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "common/cpu_features.h"
#include "noise/noise_kernels.h"
#include "noise/rotation_kernels.h"
#include "parallel/parallel_for.h"

namespace shieldfl::noise {
namespace {

// A thread must have as many values as take a quarter of a millisecond: threads_for().
constexpr std::size_t kValuesWorthRotation = std::size_t{1} << 16;

// Values that are transformed at once in the second cache: 256 KiB.
template <typename T>
constexpr std::size_t kCached = (std::size_t{1} << 18) / sizeof(T);

// Columns that are combined at once: as many bytes of a row as make a page.
template <typename T>
constexpr std::size_t kColumns = 4096 / sizeof(T);

template <typename T>
void scale_to(const T* in, T* out, std::size_t count, double factor) {
  if constexpr (std::is_same_v<T, float>) {
    noise_kernels(instruction_set()).scale(in, out, count, factor);
  } else {
    std::transform(in, in + count, out, [factor](double value) { return value * factor; });
  }
}

}  // namespace

// The transforms of the largest 2^k values that fit into `size`.
// Not local to the file: lambdas of templates that are not have one, of which GCC warns where files are
// compiled as one.
template <typename T>
class RotationTransform {
 public:
  RotationTransform(std::size_t size, const Seed& public_seed, std::size_t threads)
      : seed_(public_seed),
        threads_(threads_for(threads, size, kValuesWorthRotation)),
        kernels_(rotation_kernels<T>(instruction_set())),
        count_(std::bit_floor(size)),
        cached_(std::min(count_, kCached<T>)),
        norm_(static_cast<T>(1.0 / std::sqrt(static_cast<double>(count_)))) {}

  [[nodiscard]] std::size_t threads() const { return threads_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  // What the first stages are done at once for.
  [[nodiscard]] std::size_t cached() const { return cached_; }

  // The values at `start` of transform t, `size` of them, times their signs and 2^(-k/2).
  void sign(T* values, std::uint64_t t, std::size_t start, std::size_t size) const {
    constexpr std::size_t kSignsPerBlock = 8 * kChaCha20BlockBytes;
    std::vector<std::uint64_t> signs((size + 63) / 64);
    RandomStream stream(seed_, t, static_cast<std::uint32_t>(start / kSignsPerBlock));
    stream.fill({reinterpret_cast<std::uint8_t*>(signs.data()), sizeof signs[0] * signs.size()});
    kernels_.scale_and_sign(values, signs.data(), size, norm_);
  }

  void first_stages(T* values) const {
    kernels_.transform(values, static_cast<unsigned>(std::countr_zero(cached_)));
  }

  // Those after first_stages for all.
  void last_stages(T* values) const {
    std::size_t stride = cached_;
    while (stride < count_) {
      const auto left = static_cast<unsigned>(std::countr_zero(count_ / stride));
      const unsigned stages = left == 4 ? 2 : std::min(left, kMostStages);
      // Column c of all that the rows of a group hold is column c % stride of group c / stride.
      parallel_for(count_ >> stages, threads_, kColumns<T>, [&](std::size_t begin, std::size_t end) {
        for (std::size_t column = begin; column < end; column += kColumns<T>) {
          const std::size_t group = column / stride * stride;
          kernels_.combine_rows(values + (group << stages) + (column - group), stride, stages, kColumns<T>);
        }
      });
      stride <<= stages;
    }
  }

 private:
  const Seed& seed_;
  std::size_t threads_;
  const RotationKernels<T>& kernels_;
  std::size_t count_;
  std::size_t cached_;
  T norm_;
};

template <typename T>
void rotate(std::span<const T> values, std::span<T> rotated, const Seed& public_seed, double factor,
            std::size_t threads) {
  if (values.empty()) return;
  const RotationTransform<T> transform(values.size(), public_seed, threads);
  const std::size_t cached = transform.cached();
  parallel_for(values.size(), transform.threads(), cached, [&](std::size_t begin, std::size_t end) {
    for (std::size_t start = begin; start < end; start += cached) {
      T* const block = rotated.data() + start;
      scale_to(values.data() + start, block, std::min(cached, end - start), factor);
      if (start >= transform.count()) continue;
      transform.sign(block, 0, start, cached);
      transform.first_stages(block);
    }
  });
  transform.last_stages(rotated.data());
  T* const last = rotated.data() + (rotated.size() - transform.count());
  parallel_for(transform.count(), transform.threads(), cached, [&](std::size_t begin, std::size_t end) {
    for (std::size_t start = begin; start < end; start += cached) {
      transform.sign(last + start, 1, start, cached);
      transform.first_stages(last + start);
    }
  });
  transform.last_stages(last);
}

template <typename T>
void rotate_back(std::span<const T> rotated, std::span<T> values, const Seed& public_seed, double factor,
                 std::size_t threads) {
  if (values.empty()) return;
  const RotationTransform<T> transform(values.size(), public_seed, threads);
  const std::size_t cached = transform.cached();
  parallel_for(values.size(), transform.threads(), cached, [&](std::size_t begin, std::size_t end) {
    scale_to(rotated.data() + begin, values.data() + begin, end - begin, factor);
  });
  for (const std::uint64_t t : {1, 0}) {
    T* const part = t == 1 ? values.data() + (values.size() - transform.count()) : values.data();
    parallel_for(transform.count(), transform.threads(), cached, [&](std::size_t begin, std::size_t end) {
      for (std::size_t start = begin; start < end; start += cached) transform.first_stages(part + start);
    });
    transform.last_stages(part);
    parallel_for(transform.count(), transform.threads(), cached, [&](std::size_t begin, std::size_t end) {
      for (std::size_t start = begin; start < end; start += cached) {
        transform.sign(part + start, t, start, cached);
      }
    });
  }
}

template void rotate(std::span<const float>, std::span<float>, const Seed&, double, std::size_t);
template void rotate(std::span<const double>, std::span<double>, const Seed&, double, std::size_t);
template void rotate_back(std::span<const float>, std::span<float>, const Seed&, double, std::size_t);
template void rotate_back(std::span<const double>, std::span<double>, const Seed&, double, std::size_t);

}  // namespace shieldfl::noise
