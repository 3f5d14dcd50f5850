// Sums opened by arithmetic that is not ours: SEAL's transforms and products, with our secrets and our a.
#include <seal/seal.h>
#include <seal/util/ntt.h>
#include <seal/util/polyarithsmallmod.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "ring/modulus.h"
#include "tests/check.h"
#include "tests/kahe/kahe_cases.h"

namespace kahe_seal_tests {

using namespace shieldfl;
using namespace shieldfl::kahe;
using tests::Frame;
using tests::Session;
using tests::Values;

namespace {

using Words = std::vector<std::uint64_t>;

// The sum of messages, scaled, of one coefficient modulo a prime.
std::uint64_t message_residue(const ParameterFacts& facts, const std::vector<std::int64_t>& sums,
                              std::size_t coefficient, std::uint64_t q) {
  std::uint64_t residue = 0;
  if (coefficient == facts.row_values()) return residue;
  for (unsigned field = 0; field < facts.values_per_coefficient; ++field) {
    const std::size_t at = field * facts.row_values() + coefficient;
    if (at >= sums.size()) break;
    const std::uint64_t factor = ring::power_vartime(2, facts.log2_scale + field * facts.field_bits(), q);
    const std::uint64_t term = ring::multiply(ring::residue(sums[at] % static_cast<std::int64_t>(q), q),
                                              ring::make_factor(factor, q), q);
    residue = ring::add(residue, term, q);
  }
  return residue;
}

}  // namespace

TEST(seal_opens_sums_of_twenty_clients_with_the_sum_of_their_secrets) {
  constexpr std::uint32_t kClients = 20;
  std::mt19937_64 generator(501);
  for (const std::uint32_t degree : {2048U, 4096U, 8192U}) {
    const Session session({kClients, 24, 20, degree}, kClients);
    const ParameterFacts& facts = session.facts();
    const std::size_t count = facts.values_per_block() - 9;
    InsecureTestRandom seeds(degree);
    std::vector<Frame> batches;
    std::vector<std::int64_t> sums(count, 0);
    for (std::uint32_t client = 0; client < kClients; ++client) {
      const Values values = tests::random_values(facts, count, generator);
      for (std::size_t i = 0; i < count; ++i) sums[i] += std::llrint(std::ldexp(values[i], 20));
      batches.push_back(encrypt(session, client, values, seeds, 1));
    }
    const Frame total = tests::total_of(session, batches);
    const CiphertextView view = CiphertextView::parse(total, FrameKind::kKaheTotal);
    const SumKey sum_key = tests::answer(session, tests::request_of(total));
    Words rows(view.format.words());
    view.format.unpack(view.block(0), rows);
    session.key->parameters()->digits().to_residues(rows);

    std::vector<std::int64_t> errors(degree);
    for (std::size_t p = 0; p < facts.primes.size(); ++p) {
      const seal::Modulus modulus(facts.primes[p]);
      const std::uint64_t q = modulus.value();
      const seal::util::NTTTables tables(std::countr_zero(degree), modulus);
      Words row(rows.begin() + static_cast<std::ptrdiff_t>(p * degree),
                rows.begin() + static_cast<std::ptrdiff_t>((p + 1) * degree));
      Words secret(degree);
      for (std::size_t i = 0; i < degree; ++i) secret[i] = ring::residue(sum_key.coefficients()[i], q);
      const auto a = session.key->polynomial(0).subspan(p * degree, degree);
      seal::util::ntt_negacyclic_harvey(seal::util::CoeffIter(secret.data()), tables);
      seal::util::ntt_negacyclic_harvey(seal::util::CoeffIter(row.data()), tables);
      seal::util::dyadic_product_coeffmod(seal::util::ConstCoeffIter(a.data()),
                                          seal::util::ConstCoeffIter(secret.data()), degree, modulus,
                                          seal::util::CoeffIter(secret.data()));
      seal::util::sub_poly_coeffmod(seal::util::ConstCoeffIter(row.data()),
                                    seal::util::ConstCoeffIter(secret.data()), degree, modulus,
                                    seal::util::CoeffIter(row.data()));
      seal::util::inverse_ntt_negacyclic_harvey(seal::util::CoeffIter(row.data()), tables);
      // What is left beside the messages is the same small error modulo every prime.
      for (std::size_t i = 0; i < degree; ++i) {
        const std::uint64_t rest = ring::add(row[i], q - message_residue(facts, sums, i, q), q);
        const std::int64_t error = ring::centered(rest, q);
        CHECK(p == 0 || error == errors[i]);
        CHECK(std::llabs(error) < std::int64_t{1} << (facts.log2_scale - 1));
        errors[i] = error;
      }
    }
    const OpenedSums opened = tests::open(session, total, sum_key);
    for (std::size_t i = 0; i < count; ++i) CHECK(opened.values[i] == facts.fixed_point().to_real(sums[i]));
  }
}

}  // namespace kahe_seal_tests
