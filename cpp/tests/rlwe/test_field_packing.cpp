// Messages of the largest sums, with the largest noise, in rings of one to four primes.
#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "common/cpu_features.h"
#include "kahe/parameters.h"
#include "ring/modulus.h"
#include "rlwe/field_packing.h"
#include "tests/check.h"

namespace rlwe_field_packing_tests {

using namespace shieldfl;
using rlwe::FieldPacking;
using rlwe::FieldShape;

namespace {

using Words = std::vector<std::uint64_t>;
using Integers = std::vector<std::int64_t>;

// One, two and four primes; fields that end at the last bit of 128, and one field alone; odd sums.
const std::vector<kahe::ParameterRequest> kRequests = {
    {64, 24, 20, 2048}, {1, 2, 0, 2048}, {64, 24, 20, 4096}, {64, 24, 20, 8192},
    {3, 40, 30, 8192},  {1, 2, 0, 8192}, {7, 2, 0, 8192},    {1000, 16, 10, 8192}};

struct Packed {
  // `fields`: of a coefficient, those of the parameters at most.
  explicit Packed(const kahe::ParameterRequest& request, unsigned fields = ~0U)
      : parameters(kahe::Parameters::derive(request)),
        shape(shape_of(parameters->facts(), fields)),
        packing(parameters->digits(), shape),
        rows(parameters->digits().words()) {}

  static FieldShape shape_of(const kahe::ParameterFacts& facts, unsigned fields) {
    FieldShape shape = facts.field_shape();
    shape.fields = std::min(shape.fields, fields);
    return shape;
  }

  [[nodiscard]] const Words& primes() const { return parameters->facts().primes; }
  [[nodiscard]] std::size_t degree() const { return parameters->facts().degree; }
  [[nodiscard]] std::uint64_t clients() const { return parameters->facts().max_clients; }

  void add_everywhere(std::span<const std::int64_t> values) {
    for (std::size_t p = 0; p < primes().size(); ++p) {
      packing.add_message(values, shape.values(), p, std::span(rows).subspan(p * degree(), degree()));
    }
  }

  // As adding the same values once for each client, of which two do so: with every further one a residue
  // grows by as much as with the first.
  void add_for_all_clients(std::span<const std::int64_t> values) {
    const Words before = rows;
    add_everywhere(values);
    if (clients() == 1) return;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::uint64_t q = primes()[i / degree()];
      const auto one = static_cast<ring::UInt128>(rows[i] + q - before[i]);
      rows[i] = static_cast<std::uint64_t>((before[i] + one * (clients() - 1)) % q);
    }
    add_everywhere(values);
  }

  void add(std::size_t coefficient, std::int64_t number, unsigned shift = 0) {
    for (std::size_t p = 0; p < primes().size(); ++p) {
      const std::uint64_t q = primes()[p];
      const auto term = static_cast<ring::UInt128>(reduced(number, q)) * ring::power_vartime(2, shift, q);
      std::uint64_t& residue = rows[p * degree() + coefficient];
      residue = static_cast<std::uint64_t>((residue + term) % q);
    }
  }

  bool read(std::vector<double>& sums) {
    Words copy = rows;
    sums.assign(shape.values(), 0.0);
    return packing.read_sums(copy, clients(), too_much, sums);
  }

  static std::uint64_t reduced(std::int64_t number, std::uint64_t q) {
    const auto magnitude = static_cast<std::uint64_t>(number < 0 ? -number : number) % q;
    return number < 0 ? (q - magnitude) % q : magnitude;
  }

  std::uint64_t too_much = 0;  // in each coefficient
  std::shared_ptr<const kahe::Parameters> parameters;
  FieldShape shape;
  FieldPacking packing;
  Words rows;
};

// All fields that the parameters have, or so few that 128 bits hold them whatever the number of primes.
constexpr unsigned kFields[] = {~0U, 2};

std::vector<std::pair<kahe::ParameterRequest, unsigned>> cases() {
  std::vector<std::pair<kahe::ParameterRequest, unsigned>> all;
  for (const auto& request : kRequests) {
    for (const unsigned fields : kFields) all.emplace_back(request, fields);
  }
  return all;
}

// A value for each field: all largest, all smallest, in turns by field or coefficient, or at random.
std::vector<Integers> extremes(const Packed& packed, std::mt19937_64& generator) {
  const std::int64_t most = packed.shape.fixed_point.max_magnitude();
  std::vector<Integers> all(5, Integers(packed.degree() * packed.shape.fields, 0));
  for (unsigned field = 0; field < packed.shape.fields; ++field) {
    for (std::size_t i = 0; i < packed.shape.row_values; ++i) {
      const std::size_t at = field * packed.degree() + i;
      all[0][at] = most;
      all[1][at] = -most;
      all[2][at] = (field + i) % 2 == 0 ? most : -most;
      all[3][at] = generator() % 2 == 0 ? most : -most;
      all[4][at] = static_cast<std::int64_t>(generator() % (2 * static_cast<std::uint64_t>(most) + 1)) - most;
    }
  }
  return all;
}

}  // namespace

TEST(the_largest_sums_are_read_through_the_largest_noise) {
  std::mt19937_64 generator(521);
  for (const auto& [request, fields] : cases()) {
    Packed packed(request, fields);
    const std::int64_t half_scale = std::int64_t{1} << (packed.shape.log2_scale - 1);
    for (const Integers& values : extremes(packed, generator)) {
      packed.too_much = generator() % 2 * (packed.clients() / 2);
      std::ranges::fill(packed.rows, 0);
      packed.add_for_all_clients(values);
      for (std::size_t i = 0; i < packed.degree(); ++i) {
        const std::int64_t noises[] = {
            0, half_scale - 1, -half_scale,
            static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(2 * half_scale)) - half_scale};
        packed.add(i, noises[generator() % std::size(noises)]);
        packed.add(i, static_cast<std::int64_t>(packed.too_much));
      }
      std::vector<double> sums;
      CHECK(packed.read(sums));
      for (std::size_t v = 0; v < sums.size(); ++v) {
        const std::size_t at = v / packed.shape.row_values * packed.degree() + v % packed.shape.row_values;
        const auto sum = values[at] * static_cast<std::int64_t>(packed.clients());
        CHECK(sums[v] == packed.shape.fixed_point.to_real(sum));
      }
    }
  }
}

TEST(what_no_sum_is_is_found_in_every_field) {
  std::mt19937_64 generator(522);
  std::vector<double> sums;
  // Every third and the last where the process has chosen less than the best instruction set: the kernels of
  // all sets are held to give the same numbers.
  const unsigned step_of_fields =
      instruction_set() == best_instruction_set() || tests::all_are_tried() ? 1 : 3;
  for (const auto& [request, fields] : cases()) {
    Packed packed(request, fields);
    const std::size_t last = packed.degree() - 1;
    for (unsigned field = 0; field < packed.shape.fields; ++field) {
      if (field % step_of_fields != 0 && field + 1 != packed.shape.fields) continue;
      const unsigned shift = packed.shape.log2_scale + field * packed.shape.field_bits;
      for (const bool negative : {false, true}) {
        const std::int64_t step = negative ? -1 : 1;
        const auto largest =
            static_cast<std::int64_t>(packed.clients()) * packed.shape.fixed_point.max_magnitude();
        for (const std::size_t place : {std::size_t{0}, last - 1}) {
          std::ranges::fill(packed.rows, 0);
          packed.add(place, step * largest, shift);
          CHECK(packed.read(sums));
          CHECK(sums[field * packed.shape.row_values + place] ==
                packed.shape.fixed_point.to_real(step * largest));
          packed.add(place, step, shift);
          CHECK(!packed.read(sums));
        }
        // The coefficient that holds no value.
        std::ranges::fill(packed.rows, 0);
        packed.add(last, step, shift);
        CHECK(!packed.read(sums));
      }
    }
    // Noise that rounds up to a value, and any number of the whole ring.
    std::ranges::fill(packed.rows, 0);
    packed.add(last, std::int64_t{1} << (packed.shape.log2_scale - 1));
    CHECK(!packed.read(sums));
    for (int repetition = 0; repetition < 20; ++repetition) {
      for (std::size_t i = 0; i < packed.rows.size(); ++i) {
        packed.rows[i] = generator() % packed.primes()[i / packed.degree()];
      }
      CHECK(!packed.read(sums));
    }
  }
}

}  // namespace rlwe_field_packing_tests
