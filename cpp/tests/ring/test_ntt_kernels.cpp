#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "ring/ntt.h"
#include "ring/ntt_kernels.h"
#include "tests/check.h"
#include "tests/ring/ring_cases.h"

namespace ring_ntt_kernels_tests {

using namespace shieldfl;
using namespace shieldfl::ring;
using namespace shieldfl::tests;

namespace {

using Row = std::vector<std::uint64_t>;

// The row one word into its memory, so that no vector is aligned.
Row transformed(const Ntt& ntt, const Row& row, void (Ntt::*transform)(std::span<std::uint64_t>) const) {
  Row shifted(1);
  shifted.insert(shifted.end(), row.begin(), row.end());
  (ntt.*transform)(std::span(shifted).subspan(1));
  return {shifted.begin() + 1, shifted.end()};
}

void check_transforms(std::size_t degree, std::uint64_t q, std::mt19937_64& generator) {
  const Ntt scalar(degree, Modulus(q), InstructionSet::kScalar);
  const std::vector<Row> rows = residue_rows(degree, q, generator);
  for (const InstructionSet set : vector_sets()) {
    const Ntt ntt(degree, Modulus(q), set);
    for (const Row& row : rows) {
      const Row values = transformed(scalar, row, &Ntt::forward);
      CHECK(transformed(ntt, row, &Ntt::forward) == values);
      CHECK(transformed(ntt, values, &Ntt::inverse) == row);
      CHECK(transformed(ntt, row, &Ntt::inverse) == transformed(scalar, row, &Ntt::inverse));
    }
  }
}

}  // namespace

TEST(ntt_kernels_agree_for_every_degree) {
  std::mt19937_64 generator(51);
  for (std::size_t degree = kVectorMinDegree; degree <= (1U << 16); degree *= 2) {
    check_transforms(degree, largest_ntt_prime(50, degree), generator);
  }
}

TEST(ntt_kernels_agree_for_every_length_of_modulus) {
  std::mt19937_64 generator(52);
  for (const std::size_t degree : {64, 2048, 4096}) {
    for (unsigned bits = 20; bits <= 50; ++bits) {
      for (const std::uint64_t q : {largest_ntt_prime(bits, degree), smallest_ntt_prime(bits, degree)}) {
        CHECK(q != 0 && q < kVectorModulusLimit);
        check_transforms(degree, q, generator);
      }
    }
  }
}

TEST(ntt_kernels_agree_on_unit_vectors) {
  // Each takes one path through every butterfly, so that a wrong factor shows up alone.
  for (const std::size_t degree : {64, 128, 256, 512}) {
    const std::uint64_t q = largest_ntt_prime(50, degree);
    const Ntt scalar(degree, Modulus(q), InstructionSet::kScalar);
    for (const InstructionSet set : vector_sets()) {
      const Ntt ntt(degree, Modulus(q), set);
      for (std::size_t i = 0; i < degree; ++i) {
        Row unit(degree, 0);
        unit[i] = 1;
        CHECK(transformed(ntt, unit, &Ntt::forward) == transformed(scalar, unit, &Ntt::forward));
        CHECK(transformed(ntt, unit, &Ntt::inverse) == transformed(scalar, unit, &Ntt::inverse));
      }
    }
  }
}

TEST(ntt_kernels_multiply_alike_rows_of_any_length) {
  std::mt19937_64 generator(53);
  constexpr std::size_t kDegree = 64;
  for (const unsigned bits : {20, 31, 32, 33, 49, 50}) {
    for (const std::uint64_t q : {largest_ntt_prime(bits, kDegree), smallest_ntt_prime(bits, kDegree)}) {
      const Ntt scalar(kDegree, Modulus(q), InstructionSet::kScalar);
      for (const InstructionSet set : vector_sets()) {
        const Ntt ntt(kDegree, Modulus(q), set);
        for (const std::size_t count : {0, 1, 3, 7, 8, 9, 15, 16, 17, 64, 1000}) {
          const std::vector<Row> rows = residue_rows(count, q, generator);
          for (const Row& factors : rows) {
            const PreparedRow prepared = ntt.prepare(factors);
            const PreparedRow expected_prepared = scalar.prepare(factors);
            for (const Row& row : rows) {
              Row expected(count);
              scalar.multiply(row, expected_prepared, expected);
              // A sentinel behind the row stays as it is.
              Row out(count + 1, 42);
              ntt.multiply(row, prepared, std::span(out).first(count));
              CHECK(out.back() == 42);
              out.pop_back();
              CHECK(out == expected);
              Row in_place = row;
              ntt.multiply(in_place, prepared, in_place);
              CHECK(in_place == expected);
            }
          }
        }
      }
    }
  }
}

}  // namespace ring_ntt_kernels_tests
