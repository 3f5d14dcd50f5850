#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "paillier/big_integer.h"
#include "paillier/packing.h"
#include "tests/check.h"
#include "tests/paillier/paillier_cases.h"

namespace paillier_packing_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;

namespace {

using Integers = std::vector<std::int64_t>;

const std::vector<Parameters> kParameters = {
    Parameters({.key_bits = 2048}),
    Parameters({.key_bits = 2048, .packing = Packing::kSingle}),
    Parameters({.key_bits = 2048, .max_clients = 64, .max_weight = 16}),
    Parameters({.key_bits = 2048, .value_bits = 2, .fraction_bits = 0, .max_clients = 1}),
    Parameters({.key_bits = 2048, .value_bits = 40, .max_clients = 1U << 14}),
    Parameters({.key_bits = 2048, .value_bits = 32, .max_clients = 1}),  // fields end where words do
    Parameters({.key_bits = 3072}),
    Parameters({.key_bits = 3072, .value_bits = 26, .max_clients = 33}),
    Parameters({.key_bits = 4096, .value_bits = 12, .fraction_bits = 4, .max_clients = 20}),
};

std::vector<std::uint64_t> words_of(const BigInteger& number, const Parameters& parameters) {
  const auto words = number.to_words(parameters.modulus_words());
  return {words.begin(), words.end()};
}

// Odd numbers of exactly the key's length: the smallest, the largest and one of a key.
std::vector<std::vector<std::uint64_t>> moduli(const Parameters& parameters) {
  std::vector<std::uint64_t> smallest(parameters.modulus_words());
  smallest.front() = 1;
  smallest.back() = std::uint64_t{1} << 63;
  const std::vector<std::uint64_t> largest(parameters.modulus_words(), ~std::uint64_t{0});
  const auto n = tests::key_pair(parameters).public_key->modulus();
  return {smallest, largest, {n.begin(), n.end()}};
}

// The plaintext by definition.
BigInteger plaintext_of(const Parameters& parameters, const Integers& values, const BigInteger& n) {
  BigInteger place(1);
  BigInteger sum(0);
  for (const std::int64_t value : values) {
    const BigInteger magnitude(static_cast<std::uint64_t>(value < 0 ? -value : value));
    const BigInteger term = magnitude * place % n;
    sum = (value < 0 ? sum + (n - term) : sum + term) % n;
    place = place * BigInteger(std::uint64_t{1} << parameters.field_bits());
  }
  return sum;
}

std::vector<std::uint64_t> pack(const Parameters& parameters, const Integers& values,
                                const std::vector<std::uint64_t>& modulus) {
  std::vector<std::uint64_t> plaintext(parameters.modulus_words(), 77);
  pack_values(parameters, values, modulus, plaintext);
  return plaintext;
}

void check_round_trip(const Parameters& parameters, const Integers& values, std::uint64_t total_weight) {
  for (const auto& modulus : moduli(parameters)) {
    const auto plaintext = pack(parameters, values, modulus);
    CHECK(plaintext ==
          words_of(plaintext_of(parameters, values, BigInteger::from_words(modulus)), parameters));
    Integers sums(values.size());
    CHECK(unpack_sums(parameters, plaintext, modulus, total_weight, sums));
    CHECK(sums == values);
  }
}

bool opens(const Parameters& parameters, const BigInteger& plaintext, const BigInteger& n, std::size_t fields,
           std::uint64_t total_weight) {
  Integers sums(fields);
  return unpack_sums(parameters, words_of(plaintext % n, parameters), words_of(n, parameters), total_weight,
                     sums);
}

}  // namespace

TEST(sums_of_any_sign_and_number_are_packed_by_definition) {
  std::mt19937_64 generator(1);
  for (const Parameters& parameters : kParameters) {
    const std::int64_t limit = parameters.max_magnitude();
    const auto weight = static_cast<std::int64_t>(parameters.max_total_weight());
    const std::size_t capacity = parameters.values_per_ciphertext();
    for (int round = 0; round < 20; ++round) {
      Integers values(round < 2 ? capacity : 1 + generator() % capacity);
      std::uniform_int_distribution<std::int64_t> distribution(-limit * weight, limit * weight);
      for (std::int64_t& value : values) value = distribution(generator);
      check_round_trip(parameters, values, parameters.max_total_weight());
    }
  }
}

TEST(fields_may_all_be_at_their_largest) {
  for (const Parameters& parameters : kParameters) {
    for (const std::uint64_t weight : {std::uint64_t{1}, parameters.max_total_weight()}) {
      const auto extreme = parameters.max_magnitude() * static_cast<std::int64_t>(weight);
      const std::size_t capacity = parameters.values_per_ciphertext();
      check_round_trip(parameters, Integers(capacity, extreme), weight);
      check_round_trip(parameters, Integers(capacity, -extreme), weight);
      check_round_trip(parameters, Integers(capacity, 0), weight);
      Integers alternating(capacity, extreme);
      for (std::size_t i = 0; i < capacity; i += 2) alternating[i] = -extreme;
      check_round_trip(parameters, alternating, weight);
      Integers last(capacity, 0);
      last.back() = -1;
      check_round_trip(parameters, last, weight);
    }
  }
}

TEST(sums_that_fill_the_guard_bits_open) {
  // 64 clients of 24 bits: the sum of the largest is 2^29 - 64, below 2^29 - 1, which a field could hold.
  const Parameters parameters({.key_bits = 2048});
  CHECK(parameters.max_magnitude() * 64 == (1 << 29) - 64);
  check_round_trip(parameters, Integers(parameters.values_per_ciphertext(), (1 << 29) - 64), 64);
}

TEST(a_sum_beyond_what_the_clients_can_make_is_refused) {
  for (const Parameters& parameters : kParameters) {
    for (const std::uint64_t weight : {std::uint64_t{1}, parameters.max_total_weight()}) {
      const auto extreme = parameters.max_magnitude() * static_cast<std::int64_t>(weight);
      const std::size_t capacity = parameters.values_per_ciphertext();
      for (const std::size_t field : {std::size_t{0}, capacity / 2, capacity - 1}) {
        for (const std::int64_t beyond : {extreme + 1, -extreme - 1}) {
          Integers values(capacity, extreme);
          values[field] = beyond;
          for (const auto& modulus : moduli(parameters)) {
            const BigInteger n = BigInteger::from_words(modulus);
            CHECK(!opens(parameters, plaintext_of(parameters, values, n), n, capacity, weight));
          }
        }
      }
    }
  }
}

TEST(fields_behind_the_last_one_are_refused) {
  for (const Parameters& parameters : kParameters) {
    const std::size_t capacity = parameters.values_per_ciphertext();
    for (std::size_t fields = 1; fields < capacity; fields += 1 + capacity / 7) {
      for (const std::int64_t value : {1, -1}) {
        Integers values(fields + 1, 0);
        values.back() = value;
        for (const auto& modulus : moduli(parameters)) {
          Integers sums(fields);
          CHECK(!unpack_sums(parameters, pack(parameters, values, modulus), modulus, 1, sums));
        }
      }
    }
  }
}

TEST(plaintexts_that_are_no_sums_are_refused) {
  for (const Parameters& parameters : kParameters) {
    const std::size_t capacity = parameters.values_per_ciphertext();
    for (const auto& modulus : moduli(parameters)) {
      const BigInteger n = BigInteger::from_words(modulus);
      const BigInteger one(1);
      const BigInteger half = n / BigInteger(2);
      const std::uint64_t weight = parameters.max_total_weight();
      for (const BigInteger& plaintext :
           {half - one, half, half + one, half + half / BigInteger(2), half * half}) {
        CHECK(!opens(parameters, plaintext, n, capacity, weight));
      }
      CHECK(opens(parameters, BigInteger(0), n, capacity, weight));
      CHECK(opens(parameters, n - one, n, capacity, weight));
      // The smallest sum that takes all fields' bits, once in either direction.
      BigInteger edge(1);
      for (std::size_t i = 0; i < capacity * parameters.field_bits() - 1; ++i) edge = edge + edge;
      CHECK(!opens(parameters, edge, n, capacity, weight));
      CHECK(!opens(parameters, n - edge, n, capacity, weight));
    }
  }
}

TEST(random_plaintexts_are_refused) {
  const Parameters parameters({.key_bits = 2048});
  RandomStream random(InsecureTestRandom(4).next(), 0);
  const auto n = tests::modulus_of(*tests::key_pair(parameters).public_key);
  for (int i = 0; i < 50; ++i) {
    CHECK(!opens(parameters, tests::random_integer(random, 40), n, parameters.values_per_ciphertext(), 64));
  }
}

}  // namespace paillier_packing_tests
