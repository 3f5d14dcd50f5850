// Honest sums open bit for bit, whatever the scheme and its parameters, the number of clients, masks, weights
// and threads.
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "common/cpu_features.h"
#include "tests/check.h"
#include "tests/enrolled/altered_totals.h"
#include "tests/enrolled/enrolled_cases.h"
#include "tests/mask/mask_cases.h"

namespace enrolled_exact_tests {

using namespace shieldfl;
using tests::EnrolledSession;
using tests::Frame;
using tests::Values;

namespace {

template <typename Types>
const std::vector<typename Types::ParameterRequest>& requests();

// Each ring, one field and several, one client and odd numbers, no guard bits, and the widest fields.
template <>
const std::vector<kahe::ParameterRequest>& requests<tests::KaheTypes>() {
  static const std::vector<kahe::ParameterRequest> all = {
      {5, 24, 20, {}},   {5, 24, 20, 2048},  {5, 24, 20, 8192}, {1, 2, 0, 4096},  {7, 2, 0, 8192},
      {3, 40, 30, 8192}, {64, 24, 20, 8192}, {3, 16, 10, {}},   {2, 10, 52, 2048}};
  return all;
}

// Short pads and long ones, the shortest and the longest words.
template <>
const std::vector<pads::ParameterRequest>& requests<tests::PadsTypes>() {
  static const std::vector<pads::ParameterRequest> all = {{5, 24, 20},  {5, 29, 20},        {5, 30, 20},
                                                          {1, 2, 0},    {7, 2, 0},          {3, 40, 30},
                                                          {64, 24, 20}, {1U << 14, 40, 30}, {2, 10, 52}};
  return all;
}

enum class Kind { kRandom, kLargest, kSmallest, kMixedExtremes };

template <typename Facts>
Values values_of(Kind kind, const Facts& facts, std::size_t count, std::mt19937_64& generator) {
  Values values = tests::random_values(facts, count, generator);
  const double limit = facts.fixed_point().value_limit();
  for (double& value : values) {
    if (kind == Kind::kLargest || (kind == Kind::kMixedExtremes && generator() % 2 == 0)) {
      value = limit;
    } else if (kind != Kind::kRandom) {
      value = -limit;
    }
  }
  return values;
}

template <typename Facts>
std::int64_t integer(const Facts& facts, double value) {
  return std::llrint(std::ldexp(value, facts.fraction_bits));
}

template <typename Types>
void check_sums(const typename Types::ParameterRequest& request, Kind kind, std::size_t size,
                std::size_t threads, std::mt19937_64& generator) {
  const std::uint32_t clients = std::min(request.max_clients, 64U);
  const EnrolledSession<Types> session(request, clients);
  InsecureTestRandom seeds(generator());
  std::vector<Frame> batches;
  std::vector<std::int64_t> expected(size, 0);
  for (std::uint32_t client = 0; client < clients; ++client) {
    const Values values = values_of(kind, session.facts(), size, generator);
    for (std::size_t i = 0; i < size; ++i) expected[i] += integer(session.facts(), values[i]);
    batches.push_back(encrypt(session, client, values, seeds, 3));
  }
  const Frame total = tests::total_of(session, batches, threads);
  const auto sum_key = tests::answer(session, session.request_of(total), threads);
  const auto frame = sum_key.to_frame();
  const auto opened = tests::open(session, total, Types::SumKey::from_frame(frame), threads);
  CHECK(opened.values.size() == size && !opened.weight_sum);
  for (std::size_t i = 0; i < size; ++i) {
    CHECK(opened.values[i] == session.facts().fixed_point().to_real(expected[i]));
  }
}

}  // namespace

TEST_OF_BOTH(sums_are_exact) {
  std::mt19937_64 generator(401);
  // Extremes of both signs alone where the process has chosen less than the best instruction set: the kernels
  // of all sets are held to give the same numbers.
  const bool all_kinds = instruction_set() == best_instruction_set() || tests::all_are_tried();
  for (const auto& request : requests<Types>()) {
    const auto parameters = Types::PublicKey::Scheme::Parameters::derive(request);
    const std::size_t block = parameters->facts().values_per_block();
    for (const Kind kind : {Kind::kMixedExtremes, Kind::kRandom, Kind::kLargest, Kind::kSmallest}) {
      if (kind != Kind::kMixedExtremes && !all_kinds) break;
      const bool is_long = block > 40'000;
      for (const std::size_t size : {std::size_t{1}, block - 1, block + 1}) {
        if (is_long && request.max_clients > 10 && size != block + 1) continue;
        check_sums<Types>(request, kind, size, 1 + generator() % 3, generator);
      }
    }
  }
}

namespace {

// A client's values of every position, all in range, which sum up to these.
std::vector<Values> with_sums(const std::vector<std::int64_t>& sums, std::uint32_t clients,
                              const scheme::FixedPoint& fixed_point, std::mt19937_64& generator) {
  std::vector<Values> values(clients, Values(sums.size()));
  std::vector<std::int64_t> of(clients);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    std::int64_t left = sums[i];
    for (std::uint32_t client = 0; client < clients; ++client) {
      of[client] = left / (clients - client);
      left -= of[client];
    }
    // What one has more the next has less.
    for (std::uint32_t client = 1; client < clients; client += 2) {
      const std::int64_t room =
          fixed_point.max_magnitude() - std::max(std::abs(of[client - 1]), std::abs(of[client]));
      const auto more = static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(room + 1));
      of[client - 1] += more;
      of[client] -= more;
    }
    for (std::uint32_t client = 0; client < clients; ++client) {
      values[client][i] = fixed_point.to_real(of[client]);
    }
  }
  return values;
}

template <typename Types>
auto sums_of(const EnrolledSession<Types>& session, const std::vector<Values>& values) {
  InsecureTestRandom seeds(9);
  std::vector<Frame> batches;
  for (std::uint32_t client = 0; client < values.size(); ++client) {
    batches.push_back(encrypt(session, client, values[client], seeds));
  }
  return tests::open(session, tests::total_of(session, batches));
}

template <typename Types>
typename Types::ParameterRequest narrow_request(unsigned value_bits, unsigned sum_bits) {
  typename Types::ParameterRequest request{5, value_bits, 3};
  request.sum_bits = sum_bits;
  return request;
}

}  // namespace

TEST_OF_BOTH(sums_of_fewer_bits_are_exact_up_to_the_largest_that_fits) {
  std::mt19937_64 generator(403);
  for (const auto& [value_bits, sum_bits] :
       {std::pair{2U, 2U}, {16U, 16U}, {16U, 18U}, {24U, 25U}, {40U, 41U}}) {
    const EnrolledSession<Types> session(narrow_request<Types>(value_bits, sum_bits), 5);
    const std::int64_t most = (std::int64_t{1} << (sum_bits - 1)) - 1;
    std::vector<std::int64_t> sums(session.facts().values_per_block() + 1);
    for (std::int64_t& sum : sums) {
      const std::int64_t between[] = {most, -most, 0,
                                      static_cast<std::int64_t>(generator() % (2 * most + 1)) - most};
      sum = between[generator() % 4];
    }
    const auto opened = sums_of(session, with_sums(sums, 5, session.facts().fixed_point(), generator));
    for (std::size_t i = 0; i < sums.size(); ++i) {
      CHECK(opened.values[i] == session.facts().fixed_point().to_real(sums[i]));
    }
  }
}

// A sum that is too large is whoever encrypts to see to: what is left of it is in its field, and what is
// above in the next of the coefficient, where there are several.
TEST_OF_BOTH(a_sum_beyond_its_bits_opens_as_another_number) {
  const EnrolledSession<Types> session(narrow_request<Types>(16, 17), 5);
  const scheme::FixedPoint fixed_point = session.facts().fixed_point();
  const std::int64_t most = (1 << 16) - 1;
  std::mt19937_64 generator(404);
  std::vector<std::int64_t> sums(session.facts().values_per_block());
  sums[1] = most + 2;
  const auto opened = sums_of(session, with_sums(sums, 5, fixed_point, generator));
  sums[1] = -most;
  if constexpr (std::is_same_v<Types, tests::KaheTypes>) {
    CHECK(session.facts().values_per_coefficient > 1);
    sums[1 + session.facts().row_values()] = 1;
  }
  for (std::size_t i = 0; i < sums.size(); ++i) CHECK(opened.values[i] == fixed_point.to_real(sums[i]));
  if constexpr (std::is_same_v<Types, tests::KaheTypes>) {
    std::fill(sums.begin(), sums.end(), 0);
    sums[sums.size() - 3] = most + 2;
    const auto wrong = sums_of(session, with_sums(sums, 5, fixed_point, generator));
    const std::size_t row = session.facts().row_values();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (i % row != row - 3) CHECK(wrong.values[i] == 0.0);
    }
    CHECK(wrong.values[sums.size() - 3] != fixed_point.to_real(most + 2));
  }
  // The one number that no sum in range stands for.
  CHECK_THROWS(sums_of(session, with_sums({most + 1}, 5, fixed_point, generator)), ErrorCode::kWireFormat);
}

TEST_OF_BOTH(no_weight_travels_beside_sums_of_fewer_bits) {
  const EnrolledSession<Types> session(narrow_request<Types>(16, 18), 5);
  InsecureTestRandom seeds(1);
  CHECK_THROWS(encrypt(session, 0, Values(3), seeds, 0, {.purpose = tests::kUpdate, .weight = 1.0}),
               ErrorCode::kParameter);
  // Nor in a batch or a total that says so.
  const Frame batch = encrypt(session, 0, Values(3), seeds);
  const Frame total = tests::total_of(session, std::vector<Frame>{batch});
  using View = typename EnrolledSession<Types>::View;
  constexpr auto kKinds = EnrolledSession<Types>::Scheme::kKinds;
  for (const auto& [frame, kind] : {std::pair(&batch, kKinds.batch), {&total, kKinds.total}}) {
    const Frame lie = tests::with_head(View::parse(*frame, kind), [](auto& head) {
      head.layout.weighted = true;
      head.layout.value_count -= 1;
    });
    CHECK_THROWS(View::parse(lie, kind), ErrorCode::kWireFormat);
  }
  const EnrolledSession<Types> full(narrow_request<Types>(16, 19), 5);
  CHECK(!encrypt(full, 0, Values(3), seeds, 0, {.purpose = tests::kUpdate, .weight = 1.0}).empty());
}

TEST(more_ciphertexts_than_share_a_secret_are_exact) {
  std::mt19937_64 generator(402);
  const kahe::ParameterRequest request{2, 24, 20, 2048};
  const std::size_t block = kahe::Parameters::derive(request)->facts().values_per_block();
  check_sums<tests::KaheTypes>(request, Kind::kRandom, 2 * kahe::kBlocksPerSecret * block + 5, 3, generator);
}

TEST_OF_BOTH(an_empty_selection_opens_to_nothing) {
  const EnrolledSession<Types> session({3, 24, 20}, 3);
  InsecureTestRandom seeds(1);
  std::vector<Frame> batches;
  const mask::Bitset none(50);
  for (std::uint32_t client = 0; client < 3; ++client) {
    batches.push_back(
        encrypt(session, client, Values(50, 1.0), seeds, 0, {.purpose = tests::kUpdate}, &none));
  }
  CHECK(tests::open(session, tests::total_of(session, batches)).values.empty());
}

TEST_OF_BOTH(masked_and_weighted_sums_are_exact) {
  std::mt19937_64 generator(403);
  for (std::size_t number = 0; number < 3; ++number) {
    const EnrolledSession<Types> session(requests<Types>()[number], 4);
    const std::size_t size = session.facts().values_per_block() * 2;
    const mask::Bitset mask = mask::Bitset::from_bools(tests::random_bools(size, 0.7, generator));
    InsecureTestRandom seeds(generator());
    const std::vector<double> weights = {1.0, 0.5, 0.25, 0.75};
    std::vector<Frame> batches;
    std::vector<std::int64_t> expected(mask.count(), 0);
    for (std::uint32_t client = 0; client < 4; ++client) {
      const Values values = tests::random_values(session.facts(), size, generator);
      std::size_t at = 0;
      for (std::size_t i = 0; i < size; ++i) {
        if (mask.test(i)) expected[at++] += integer(session.facts(), values[i] * weights[client]);
      }
      batches.push_back(encrypt(session, client, values, seeds, 9,
                                {.purpose = tests::kUpdate, .weight = weights[client]}, &mask));
    }
    const auto opened = tests::open(session, tests::total_of(session, batches));
    CHECK(opened.weight_sum == 2.5);
    CHECK(opened.values.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(opened.values[i] == session.facts().fixed_point().to_real(expected[i]));
    }
  }
}

TEST_OF_BOTH(nothing_depends_on_the_number_of_threads) {
  std::mt19937_64 generator(404);
  const EnrolledSession<Types> session({3, 24, 20}, 3);
  const Values values =
      tests::random_values(session.facts(), 40 * session.facts().values_per_block(), generator);
  const auto run = [&](std::size_t threads) {
    InsecureTestRandom seeds(5);
    std::vector<Frame> batches;
    for (std::uint32_t client = 0; client < 3; ++client) {
      batches.push_back(
          encrypt(session, client, values, seeds, 0, {.purpose = tests::kUpdate, .threads = threads}));
    }
    const Frame total = tests::total_of(session, batches, threads);
    const auto sum_key = tests::answer(session, session.request_of(total), threads);
    return std::tuple(batches, total, sum_key.to_frame(),
                      tests::open(session, total, sum_key, threads).values);
  };
  CHECK(run(1) == run(2) && run(1) == run(7));
}

TEST_OF_BOTH(totals_of_other_aggregators_are_added_exactly) {
  std::mt19937_64 generator(405);
  const EnrolledSession<Types> session({6, 24, 20}, 6);
  InsecureTestRandom seeds(6);
  std::vector<Frame> batches;
  for (std::uint32_t client = 0; client < 6; ++client) {
    batches.push_back(
        encrypt(session, client, tests::random_values(session.facts(), 9000, generator), seeds));
  }
  typename EnrolledSession<Types>::Aggregator root(session.key, tests::kUpdate, 0, {}, 2);
  root.add_total(tests::total_of(session, {batches[4], batches[1]}));
  root.add(batches[0]);
  root.add_total(tests::total_of(session, {batches[5], batches[2], batches[3]}));
  CHECK(tests::total_of(root) == tests::total_of(session, batches));
  CHECK_THROWS((root.add(batches[3]), 0), ErrorCode::kDuplicateFrame);
}

TEST_OF_BOTH(values_out_of_range_are_refused_by_position_or_saturated) {
  const EnrolledSession<Types> session({3, 24, 20}, 3);
  InsecureTestRandom seeds(7);
  Values values(30000, 0.5);
  values[20001] = 100.0;
  values[9000] = std::numeric_limits<double>::quiet_NaN();
  try {
    encrypt(session, 0, values, seeds);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRange);
    CHECK(std::string(error.what()).find("9000") != std::string::npos);
  }
  values[9000] = -100.0;
  std::vector<Frame> batches;
  for (std::uint32_t client = 0; client < 3; ++client) {
    batches.push_back(encrypt(session, client, values, seeds, 0, {.purpose = tests::kUpdate, .clip = true}));
  }
  const auto opened = tests::open(session, tests::total_of(session, batches));
  const double limit = session.facts().fixed_point().value_limit();
  CHECK(opened.values[20001] == 3 * limit && opened.values[9000] == -3 * limit && opened.values[0] == 1.5);
}

}  // namespace enrolled_exact_tests
