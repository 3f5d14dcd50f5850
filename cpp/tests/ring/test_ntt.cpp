#include <seal/seal.h>
#include <seal/util/ntt.h>

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "ring/ntt.h"
#include "tests/check.h"

namespace ring_ntt_tests {

using namespace shieldfl;
using namespace shieldfl::ring;

namespace {

using Row = std::vector<std::uint64_t>;

Row random_row(std::size_t degree, std::uint64_t q, std::mt19937_64& generator) {
  std::uniform_int_distribution<std::uint64_t> distribution(0, q - 1);
  Row row(degree);
  for (std::uint64_t& value : row) value = distribution(generator);
  return row;
}

// Random rows, and those that take lazy arithmetic to its limits.
std::vector<Row> rows_for(std::size_t degree, std::uint64_t q, std::mt19937_64& generator) {
  std::vector<Row> rows = {Row(degree, 0), Row(degree, q - 1), Row(degree, 1), Row(degree, q / 2)};
  Row alternating(degree);
  for (std::size_t i = 0; i < degree; ++i) alternating[i] = i % 2 == 0 ? 0 : q - 1;
  rows.push_back(alternating);
  for (int i = 0; i < 4; ++i) rows.push_back(random_row(degree, q, generator));
  return rows;
}

std::vector<std::uint64_t> primes_of(std::size_t degree, const std::vector<int>& bits) {
  std::vector<std::uint64_t> primes;
  for (const auto& modulus : seal::CoeffModulus::Create(degree, bits)) primes.push_back(modulus.value());
  return primes;
}

// By the definition: X^N = -1.
Row negacyclic_product(const Row& a, const Row& b, std::uint64_t q) {
  const std::size_t degree = a.size();
  Row product(degree, 0);
  for (std::size_t i = 0; i < degree; ++i) {
    for (std::size_t j = 0; j < degree; ++j) {
      const auto term = static_cast<std::uint64_t>(static_cast<UInt128>(a[i]) * b[j] % q);
      std::uint64_t& sum = product[(i + j) % degree];
      sum = static_cast<std::uint64_t>((static_cast<UInt128>(sum) + (i + j < degree ? term : q - term)) % q);
    }
  }
  return product;
}

}  // namespace

TEST(ntt_equals_seals_and_is_inverted) {
  std::mt19937_64 generator(41);
  for (const std::size_t degree : {2048, 4096}) {
    const auto log2_degree = std::countr_zero(degree);
    for (const std::uint64_t q : primes_of(degree, {50, 50, 49, 42, 37, 30, 20, 60, 60})) {
      const Ntt ntt(degree, Modulus(q));
      const seal::util::NTTTables tables(log2_degree, seal::Modulus(q));
      CHECK(ntt.root() == tables.get_root());
      for (const Row& row : rows_for(degree, q, generator)) {
        Row ours = row;
        Row seals = row;
        ntt.forward(ours);
        seal::util::ntt_negacyclic_harvey(seal::util::CoeffIter(seals.data()), tables);
        CHECK(ours == seals);
        ntt.inverse(ours);
        CHECK(ours == row);
        Row inverse = row;
        ntt.inverse(inverse);
        seals = row;
        seal::util::inverse_ntt_negacyclic_harvey(seal::util::CoeffIter(seals.data()), tables);
        CHECK(inverse == seals);
      }
    }
  }
}

TEST(ntt_products_are_negacyclic_products) {
  std::mt19937_64 generator(42);
  for (const std::size_t degree : {2, 4, 8, 64, 256, 2048}) {
    for (const std::uint64_t q : primes_of(std::max<std::size_t>(degree, 1024), {50, 30})) {
      const Ntt ntt(degree, Modulus(q));
      const auto lefts = rows_for(degree, q, generator);
      // At full size the definition is slow: one random pair.
      for (std::size_t k = degree > 256 ? lefts.size() - 1 : 0; k < lefts.size(); ++k) {
        const Row right = random_row(degree, q, generator);
        Row left = lefts[k];
        Row transformed = right;
        ntt.forward(left);
        ntt.forward(transformed);
        for (std::size_t i = 0; i < degree; ++i)
          left[i] = multiply(left[i], make_factor(transformed[i], q), q);
        ntt.inverse(left);
        CHECK(left == negacyclic_product(lefts[k], right, q));
      }
    }
  }
}

TEST(ntt_refuses_what_has_no_transform) {
  const std::uint64_t q = primes_of(2048, {50})[0];
  for (const std::size_t degree : {0, 1, 3, 1000, 2047, 1 << 17}) {
    CHECK_THROWS(Ntt(degree, Modulus(q)), ErrorCode::kParameter);
  }
  CHECK_THROWS(Ntt(2048, Modulus(65537 - 2)), ErrorCode::kParameter);  // not 1 mod 4096
  CHECK_THROWS(Ntt(2048, Modulus(1025)), ErrorCode::kParameter);
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
    CHECK_THROWS(Modulus(value), ErrorCode::kParameter);
  }
  // 1 mod 4096, but a square: it has no root, which must not be searched for without end.
  CHECK_THROWS(Ntt(2048, Modulus(std::uint64_t{40961} * 40961)), ErrorCode::kParameter);
}

TEST(residues_and_representatives_are_inverse) {
  for (const std::uint64_t prime : {std::uint64_t{3}, std::uint64_t{12289}, primes_of(2048, {50})[0]}) {
    const auto q = static_cast<std::int64_t>(prime);
    for (const std::int64_t a : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, q / 2, -(q / 2)}) {
      CHECK(residue(a, prime) < prime);
      CHECK(centered(residue(a, prime), prime) == a);
    }
    CHECK(residue(q - 1, prime) == prime - 1 && residue(1 - q, prime) == 1);
    CHECK(centered(prime / 2 + 1, prime) == -(q / 2));
    CHECK(add(prime - 1, prime - 1, prime) == prime - 2 && add(prime - 1, 1, prime) == 0);
  }
}

TEST(multiplication_by_a_factor_takes_any_word) {
  std::mt19937_64 generator(43);
  for (const std::uint64_t q : primes_of(2048, {60, 50, 20})) {
    for (int i = 0; i < 20000; ++i) {
      const std::uint64_t w = i == 0 ? 0 : i == 1 ? q - 1 : generator() % q;
      const std::uint64_t a = i % 3 == 0 ? ~std::uint64_t{0} : generator();
      const std::uint64_t lazy = multiply_lazy(a, make_factor(w, q), q);
      CHECK(lazy < 2 * q);
      CHECK(multiply(a, make_factor(w, q), q) == static_cast<std::uint64_t>(static_cast<UInt128>(a) * w % q));
    }
    const std::uint64_t a = generator() % (q - 1) + 1;
    CHECK(multiply(a, make_factor(inverse_vartime(a, q), q), q) == 1);
    CHECK(power_vartime(a, q - 1, q) == 1 && power_vartime(a, 0, q) == 1);
  }
}

}  // namespace ring_ntt_tests
