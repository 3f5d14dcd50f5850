#include "noise/rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "common/cpu_features.h"
#include "common/secure_memory.h"
#include "noise/noise_kernels.h"
#include "noise/rotation_kernels.h"
#include "parallel/parallel_for.h"

namespace shieldfl::noise {
namespace {

// A thread must have as many values as take a quarter of a millisecond: threads_for().
constexpr std::size_t kValuesWorthRotation = std::size_t{1} << 16;

// Values that are transformed at once in the second cache: 256 KiB. Of them so many at once in the first one,
// from scaling and signs on: 4 KiB.
template <typename T>
constexpr std::size_t kCached = (std::size_t{1} << 18) / sizeof(T);
template <typename T>
constexpr std::size_t kNear = 4096 / sizeof(T);

// Columns that are combined at once: of a row as many bytes as the processor needs to see that it is read on.
template <typename T>
constexpr std::size_t kColumns = 2048 / sizeof(T);

// Stages after those that one pass over the memory does at most: its columns then fit the second cache.
constexpr unsigned kMostStagesOfPass = 7;

template <typename T>
void scale_to(const T* in, T* out, std::size_t count, double factor) {
  if constexpr (std::is_same_v<T, float>) {
    noise_kernels(instruction_set()).scale(in, out, count, factor);
  } else {
    std::transform(in, in + count, out, [factor](double value) { return value * factor; });
  }
}

// Before first_stages: nothing.
template <typename T>
constexpr void as_they_are(T* /*values*/, std::size_t /*offset*/, std::size_t /*count*/) {}

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

  // The signs of the cached() values at `start` of transform t.
  [[nodiscard]] std::vector<std::uint64_t> signs(std::uint64_t t, std::size_t start) const {
    constexpr std::size_t kSignsPerBlock = 8 * kChaCha20BlockBytes;
    std::vector<std::uint64_t> signs((cached_ + 63) / 64);
    RandomStream stream(seed_, t, static_cast<std::uint32_t>(start / kSignsPerBlock));
    stream.fill({reinterpret_cast<std::uint8_t*>(signs.data()), sizeof signs[0] * signs.size()});
    return signs;
  }

  // cached() values times their signs and 2^(-k/2).
  void sign(T* values, const std::vector<std::uint64_t>& signs) const {
    kernels_.scale_and_sign(values, signs.data(), cached_, norm_);
  }

  // The first stages of cached() values, each time of some that prepare(those, their offset, how many) has
  // written or changed just before.
  template <typename Prepare>
  void first_stages(T* values, const Prepare& prepare) const {
    const std::size_t near = std::min(cached_, kNear<T>);
    for (std::size_t start = 0; start < cached_; start += near) {
      prepare(values + start, start, near);
      kernels_.transform(values + start, static_cast<unsigned>(std::countr_zero(near)));
    }
    const auto left = static_cast<unsigned>(std::countr_zero(cached_ / near));
    combine({values, near}, {values, near}, left, near);
  }

  // The same for transform t, where they are to have their signs: cached() values at `start` of it.
  template <typename Prepare>
  void sign_and_first_stages(T* values, std::uint64_t t, std::size_t start, const Prepare& prepare) const {
    const auto bits = signs(t, start);
    first_stages(values, [&](T* near, std::size_t offset, std::size_t count) {
      prepare(near, offset, count);
      kernels_.scale_and_sign(near, bits.data() + offset / 64, count, norm_);
    });
  }

  // Those after first_stages for all.
  void last_stages(T* values) const {
    std::size_t stride = cached_;
    while (stride < count_) {
      const auto left = static_cast<unsigned>(std::countr_zero(count_ / stride));
      const unsigned passes = (left + kMostStagesOfPass - 1) / kMostStagesOfPass;
      const unsigned stages = (left + passes - 1) / passes;
      // Column c of all that the rows of a group hold is column c % stride of group c / stride.
      parallel_for(count_ >> stages, threads_, kColumns<T>, [&](std::size_t begin, std::size_t end) {
        SecretVector<T> gathered(stages > kMostStages ? kColumns<T> << stages : 0);
        for (std::size_t column = begin; column < end; column += kColumns<T>) {
          const std::size_t group = column / stride * stride;
          combine({values + (group << stages) + (column - group), stride}, {gathered.data(), kColumns<T>},
                  stages, kColumns<T>);
        }
      });
      stride <<= stages;
    }
  }

 private:
  struct Rows {
    T* begin;
    std::size_t stride;
  };

  // `stages` stages of the 2^stages rows at `rows`, `columns` of each. What they are after some stages is at
  // `between`, which may be `rows` too: next to each other they do not compete for the same places in a
  // cache.
  void combine(Rows rows, Rows between, unsigned stages, std::size_t columns) const {
    Rows from = rows;
    for (unsigned done = 0; done < stages;) {
      const unsigned left = stages - done;
      const unsigned now = left == 4 ? 2 : std::min(left, kMostStages);
      const Rows to = now == left ? rows : between;
      for (std::size_t row = 0; row < std::size_t{1} << stages; ++row) {
        if (((row >> done) & ((std::size_t{1} << now) - 1)) != 0)
          continue;  // not the first of those combined
        kernels_.combine_rows(from.begin + row * from.stride, from.stride << done, to.begin + row * to.stride,
                              to.stride << done, now, columns);
      }
      from = to;
      done += now;
    }
  }

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
      const T* const from = values.data() + start;
      if (start >= transform.count()) {
        scale_to(from, block, std::min(cached, end - start), factor);
        continue;
      }
      transform.sign_and_first_stages(block, 0, start, [&](T* near, std::size_t offset, std::size_t count) {
        scale_to(from + offset, near, count, factor);
      });
    }
  });
  transform.last_stages(rotated.data());
  T* const last = rotated.data() + (rotated.size() - transform.count());
  parallel_for(transform.count(), transform.threads(), cached, [&](std::size_t begin, std::size_t end) {
    for (std::size_t start = begin; start < end; start += cached) {
      transform.sign_and_first_stages(last + start, 1, start, as_they_are<T>);
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
      for (std::size_t start = begin; start < end; start += cached) {
        transform.first_stages(part + start, as_they_are<T>);
      }
    });
    transform.last_stages(part);
    parallel_for(transform.count(), transform.threads(), cached, [&](std::size_t begin, std::size_t end) {
      for (std::size_t start = begin; start < end; start += cached) {
        transform.sign(part + start, transform.signs(t, start));
      }
    });
  }
}

template void rotate(std::span<const float>, std::span<float>, const Seed&, double, std::size_t);
template void rotate(std::span<const double>, std::span<double>, const Seed&, double, std::size_t);
template void rotate_back(std::span<const float>, std::span<float>, const Seed&, double, std::size_t);
template void rotate_back(std::span<const double>, std::span<double>, const Seed&, double, std::size_t);

}  // namespace shieldfl::noise
