#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "ring/row_kernels.h"
#include "tests/check.h"
#include "tests/ring/ring_cases.h"

namespace ring_row_kernels_tests {

using namespace shieldfl;
using namespace shieldfl::ring;
using namespace shieldfl::tests;

namespace {

using Row = std::vector<std::uint64_t>;

constexpr std::int64_t kValueLimit = std::int64_t{1} << 40;

// Changes a row of q's residues in place with the kernels given.
using Change = std::function<void(const RowKernels&, Row&)>;

void check_sets_agree(const std::vector<Row>& rows, const Change& change) {
  for (const Row& row : rows) {
    Row expected = row;
    change(kRowKernelsScalar, expected);
    for (const InstructionSet set : vector_sets()) {
      Row out = row;
      change(row_kernels(set), out);
      CHECK(out == expected);
    }
  }
}

void for_each_modulus_and_count(
    const std::function<void(std::uint64_t q, std::size_t count, std::mt19937_64&)>& body) {
  std::mt19937_64 generator(61);
  for (const unsigned bits : {20, 31, 32, 33, 39, 40, 41, 49, 50}) {
    for (const std::uint64_t q : {largest_ntt_prime(bits, 2048), smallest_ntt_prime(bits, 2048)}) {
      for (const std::size_t count : {0, 16, 48, 112, 256, 2048}) body(q, count, generator);
    }
  }
}

std::vector<std::vector<std::int8_t>> sample_rows(std::size_t count, std::mt19937_64& generator) {
  std::vector<std::vector<std::int8_t>> rows;
  for (const int value : {-128, -1, 0, 1, 127}) rows.emplace_back(count, static_cast<std::int8_t>(value));
  std::vector<std::int8_t> row(count);
  for (std::int8_t& sample : row) sample = static_cast<std::int8_t>(generator());
  rows.push_back(row);
  return rows;
}

std::vector<std::vector<std::int64_t>> value_rows(std::size_t count, std::uint64_t q,
                                                  std::mt19937_64& generator) {
  const auto multiple =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(kValueLimit - 1) / q * q);  // 0 where q is longer
  std::vector<std::vector<std::int64_t>> rows;
  for (const std::int64_t value : {-kValueLimit + 1, -multiple, -std::int64_t{1}, std::int64_t{0},
                                   std::int64_t{1}, multiple, kValueLimit - 1}) {
    rows.emplace_back(count, value);
  }
  std::uniform_int_distribution<std::int64_t> distribution(-kValueLimit + 1, kValueLimit - 1);
  std::vector<std::int64_t> row(count);
  for (std::int64_t& value : row) value = distribution(generator);
  rows.push_back(row);
  return rows;
}

}  // namespace

TEST(row_kernels_agree_on_samples) {
  for_each_modulus_and_count([](std::uint64_t q, std::size_t count, std::mt19937_64& generator) {
    const std::vector<Row> rows = residue_rows(count, q, generator);
    for (const auto& samples : sample_rows(count, generator)) {
      check_sets_agree({rows.front()}, [&](const RowKernels& kernels, Row& row) {
        kernels.from_samples(samples.data(), count, q, row.data());
      });
      check_sets_agree(rows, [&](const RowKernels& kernels, Row& row) {
        kernels.add_samples(samples.data(), count, q, row.data());
      });
    }
  });
}

TEST(row_kernels_agree_on_sums) {
  for_each_modulus_and_count([](std::uint64_t q, std::size_t count, std::mt19937_64& generator) {
    const std::vector<Row> rows = residue_rows(count, q, generator);
    for (const Row& other : rows) {
      check_sets_agree(rows, [&](const RowKernels& kernels, Row& row) {
        kernels.add_row(other.data(), count, q, row.data());
      });
    }
  });
}

TEST(row_kernels_agree_on_scaled_values) {
  for_each_modulus_and_count([](std::uint64_t q, std::size_t count, std::mt19937_64& generator) {
    const std::vector<Row> rows = residue_rows(count, q, generator);
    for (const std::uint64_t factor :
         {std::uint64_t{0}, std::uint64_t{1}, q / 2, q - 1, std::uint64_t{generator() % q}}) {
      for (const auto& values : value_rows(count, q, generator)) {
        check_sets_agree(rows, [&](const RowKernels& kernels, Row& row) {
          kernels.add_scaled(values.data(), count, factor, q, row.data());
        });
      }
    }
  });
}

TEST(row_kernels_agree_on_digits_and_invert_them) {
  for_each_modulus_and_count([](std::uint64_t q1, std::size_t count, std::mt19937_64& generator) {
    // The other modulus below q1, just above it and at its limit; only that it is prime to q1 matters here.
    for (const std::uint64_t q0 : {(q1 + 1) / 2, q1 + 2, 2 * q1 - 1}) {
      if (q0 >= std::uint64_t{1} << 50) continue;
      const std::uint64_t factor = q0 % q1;
      const std::uint64_t inverse = inverse_vartime(factor, q1);
      const std::vector<Row> rows = residue_rows(count, q1, generator);
      for (const Row& row0 : residue_rows(count, q0, generator)) {
        check_sets_agree(rows, [&](const RowKernels& kernels, Row& row) {
          kernels.to_digits(row0.data(), row.data(), count, inverse, q1);
        });
        check_sets_agree(rows, [&](const RowKernels& kernels, Row& row) {
          kernels.from_digits(row0.data(), row.data(), count, factor, q1);
        });
        Row there_and_back = rows.back();
        kRowKernelsScalar.to_digits(row0.data(), there_and_back.data(), count, inverse, q1);
        kRowKernelsScalar.from_digits(row0.data(), there_and_back.data(), count, factor, q1);
        CHECK(there_and_back == rows.back());
      }
    }
  });
}

}  // namespace ring_row_kernels_tests
