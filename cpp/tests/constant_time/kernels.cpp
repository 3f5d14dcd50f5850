#include <cstdint>
#include <span>

#include "common/chacha20_kernels.h"
#include "common/cpu_features.h"
#include "noise/noise_kernels.h"
#include "noise/rotation_kernels.h"
#include "noise/share_kernels.h"
#include "ring/bit_packing_kernels.h"
#include "ring/ntt.h"
#include "ring/row_kernels.h"
#include "ring/sampler_kernels.h"
#include "rlwe/field_kernels.h"
#include "scheme/quantise_kernels.h"
#include "tests/constant_time/operations.h"
#include "tests/ring/ring_cases.h"

namespace shieldfl::tests {
namespace {

using Row = std::vector<std::uint64_t>;

constexpr std::size_t kDegree = 256;

struct Primes {
  std::uint64_t q0 = largest_ntt_prime(50, kDegree);
  std::uint64_t q1 = smallest_ntt_prime(50, kDegree);
};

Row secret_row(int variant, std::uint64_t q, std::size_t count = kDegree) {
  std::mt19937_64 generator = secrets_of(variant);
  return as_secret(random_residues(count, q, generator));
}

Row secret_words(int variant, std::size_t count) {
  std::mt19937_64 generator = secrets_of(variant);
  Row words(count);
  for (std::uint64_t& word : words) word = generator();
  return as_secret(words);
}

template <typename T>
std::vector<T> secret_numbers(int variant, int largest, std::size_t count = kDegree) {
  std::mt19937_64 generator = secrets_of(variant);
  std::uniform_int_distribution<int> distribution(-largest, largest);
  std::vector<T> numbers(count);
  for (T& number : numbers) number = static_cast<T>(distribution(generator));
  return as_secret(numbers);
}

void add_randomness(std::vector<SecretOperation>& operations) {
  operations.push_back(
      {"ChaCha20 blocks", [](int variant) {
         Row secret = secret_words(variant, 8);
         std::vector<std::uint32_t> state(16, 1);
         // The key; the nonce and the counter behind it are public.
         std::copy_n(reinterpret_cast<const std::uint32_t*>(secret.data()), 8, state.begin() + 4);
         return [state, out = std::vector<std::uint8_t>(37 * kChaCha20BlockBytes)]() mutable {
           chacha20_kernels(instruction_set()).blocks(state.data(), 37, out.data());
         };
       }});
  operations.push_back({"ternary samples", [](int variant) {
                          constexpr std::size_t kPairs = 21;
                          Row words = secret_words(0, 2 * kPairs);
                          Row rejected(kPairs);
                          for (std::size_t p = 0; p < kPairs; ++p) {
                            rejected[p] = words[2 * p] & words[2 * p + 1];
                            // What is proposed changes its sign, and the same proposals are rejected.
                            if (variant != 0) std::swap(words[2 * p], words[2 * p + 1]);
                          }
                          declassify(rejected.data(), rejected.size() * sizeof rejected[0]);
                          return [words, rejected, out = std::vector<std::int8_t>(64 * kPairs)]() mutable {
                            ring::sampler_kernels(instruction_set())
                                .ternary(words.data(), rejected.data(), kPairs, out.data());
                          };
                        }});
  operations.push_back(
      {"error samples", [](int variant) {
         constexpr std::size_t kGroups = 11;
         return [words = secret_words(variant, ring::kErrorGroupWords * kGroups),
                 out = std::vector<std::int8_t>(ring::kErrorGroupSamples * kGroups)]() mutable {
           ring::sampler_kernels(instruction_set()).error(words.data(), kGroups, out.data());
         };
       }});
  operations.push_back(
      {"Gaussian noise", [](int variant) {
         constexpr std::size_t kGroups = 3;
         return [words = secret_words(variant, noise::kWordsPerGroup * kGroups),
                 values = std::vector<float>(noise::kGaussianGroup * kGroups, 0.5F)]() mutable {
           noise::noise_kernels(instruction_set())
               .scale_and_add_gaussian(values.data(), values.data(), words.data(), kGroups, 0.75, 0.01);
         };
       }});
  operations.push_back({"randomised rounding", [](int variant) {
                          constexpr std::size_t kGroups = 3;
                          return
                              [words = secret_words(variant, noise::kRoundingWordsPerGroup * kGroups),
                               values = secret_numbers<float>(variant, 1000, noise::kShareGroup * kGroups),
                               rounded = std::vector<std::int32_t>(noise::kShareGroup * kGroups)]() mutable {
                                noise::share_kernels(instruction_set())
                                    .round(values.data(), rounded.data(), words.data(), kGroups, 100.0, 50);
                              };
                        }});
  operations.push_back({"a Walsh-Hadamard transform", [](int variant) {
                          return [values = secret_numbers<float>(variant, 1000),
                                  signs = Row(kDegree / 64, 0x123456789abcdef0)]() mutable {
                            const auto& kernels = noise::rotation_kernels<float>(instruction_set());
                            kernels.scale_and_sign(values.data(), signs.data(), values.size(), 0.3F);
                            kernels.transform(values.data(), 8);
                            kernels.combine_rows(values.data(), kDegree / 8, values.data(), kDegree / 8, 3,
                                                 kDegree / 8);
                          };
                        }});
}

void add_transforms(std::vector<SecretOperation>& operations) {
  const auto add = [&](const char* name, auto transform) {
    operations.push_back({name, [transform](int variant) {
                            const ring::Ntt ntt(kDegree, ring::Modulus(Primes().q0));
                            return
                                [ntt, transform, row = secret_row(variant, ntt.modulus().value)]() mutable {
                                  transform(ntt, row);
                                };
                          }});
  };
  add("forward transform", [](const ring::Ntt& ntt, Row& row) { ntt.forward(row); });
  add("inverse transform", [](const ring::Ntt& ntt, Row& row) { ntt.inverse(row); });
  add("prepared factors and products", [](const ring::Ntt& ntt, Row& row) {
    const ring::PreparedRow factors = ntt.prepare(row);
    ntt.multiply(row, factors, row);
  });
  // Lengths that fill no vector.
  add("a few prepared factors and products", [](const ring::Ntt& ntt, Row& row) {
    const auto few = std::span(row).first(13);
    const ring::PreparedRow factors = ntt.prepare(few);
    ntt.multiply(few, factors, few);
  });
}

void add_rows(std::vector<SecretOperation>& operations) {
  // All kernels get the residues of two rows, samples and values, all of them secret.
  const auto add = [&](const char* name, auto run) {
    operations.push_back({name, [run](int variant) {
                            const Primes primes;
                            return [run, primes, row = secret_row(variant, primes.q1),
                                    other = secret_row(variant + 2, primes.q1),
                                    samples = secret_numbers<std::int8_t>(variant, ring::kErrorCoins),
                                    values = secret_numbers<std::int64_t>(variant, 1 << 30)]() mutable {
                              run(ring::row_kernels(instruction_set()), primes, row, other, samples, values);
                            };
                          }});
  };
  using Kernels = ring::RowKernels;
  using Samples = std::vector<std::int8_t>;
  using Values = std::vector<std::int64_t>;
  add("samples to residues", [](const Kernels& k, const Primes& p, Row& row, Row&, Samples& samples,
                                Values&) { k.from_samples(samples.data(), kDegree, p.q1, row.data()); });
  add("adding samples", [](const Kernels& k, const Primes& p, Row& row, Row&, Samples& samples, Values&) {
    k.add_samples(samples.data(), kDegree, p.q1, row.data());
  });
  add("adding rows", [](const Kernels& k, const Primes& p, Row& row, Row& other, Samples&, Values&) {
    k.add_row(other.data(), kDegree, p.q1, row.data());
  });
  add("adding scaled values",
      [](const Kernels& k, const Primes& p, Row& row, Row&, Samples&, Values& values) {
        k.add_scaled(values.data(), kDegree, p.q1 / 3, p.q1, row.data());
      });
  add("residues to digits", [](const Kernels& k, const Primes& p, Row& row, Row& other, Samples&, Values&) {
    k.to_digits(other.data(), row.data(), kDegree, p.q1 / 3, p.q1);
  });
  add("digits to residues", [](const Kernels& k, const Primes& p, Row& row, Row& other, Samples&, Values&) {
    k.from_digits(other.data(), row.data(), kDegree, p.q0 % p.q1, p.q1);
  });
}

void add_messages(std::vector<SecretOperation>& operations) {
  operations.push_back({"packing residues", [](int variant) {
                          return [row = secret_row(variant, Primes().q0, 251),
                                  out = std::vector<std::uint8_t>(251 * 50)]() mutable {
                            const auto& kernels = ring::bit_packing_kernels(instruction_set());
                            for (unsigned dropped_bits = 0; dropped_bits < 12; ++dropped_bits) {
                              kernels.pack(row.data(), row.size(), 50 - dropped_bits, dropped_bits,
                                           out.data());
                            }
                          };
                        }});
  operations.push_back(
      {"taking sums apart", [](int variant) {
         constexpr std::size_t kCount = 203;
         // Public, and sought here: the search would be most of what is followed.
         const Primes primes;
         const auto modulus = static_cast<ring::Int128>(primes.q0) * static_cast<ring::Int128>(primes.q1);
         const rlwe::MessageRounding rounding{primes.q0, modulus, modulus / 2, ring::Int128{1} << 90, 12};
         return
             [rounding, low = secret_words(variant, kCount), high = secret_words(variant + 2, kCount),
              digits = secret_row(variant, primes.q0, kCount), out = std::vector<double>(kCount)]() mutable {
               const auto& kernels = rlwe::field_kernels(instruction_set());
               kernels.read_messages(rounding, digits.data(), digits.data(), kCount, low.data(), high.data());
               keep(kernels.take_sums(low.data(), high.data(), kCount, 30, 1 << 29, 0x1p-20, out.data()));
               keep(kernels.take_zeros(low.data(), high.data(), kCount, 30));
             };
       }});
  operations.push_back(
      {"quantising", [](int variant) {
         return [floats = secret_numbers<float>(variant, 1000, 203),
                 doubles = secret_numbers<double>(variant, 1000, 203),
                 out = std::vector<std::int64_t>(203)]() mutable {
           const auto& kernels = scheme::quantise_kernels(instruction_set());
           keep(kernels.quantise_float(floats.data(), floats.size(), 0x1p10, 0x1p20, out.data()));
           keep(kernels.quantise_double(doubles.data(), doubles.size(), 0x1p10, 0x1p20, out.data()));
         };
       }});
}

}  // namespace

std::vector<SecretOperation> kernel_operations() {
  std::vector<SecretOperation> operations;
  add_randomness(operations);
  add_transforms(operations);
  add_rows(operations);
  add_messages(operations);
  return operations;
}

}  // namespace shieldfl::tests
