#include "tests/constant_time/total.h"

#include <random>

#include "ring/modulus.h"
#include "ring/sampler.h"
#include "rlwe/field_packing.h"
#include "rlwe/packed_digits.h"
#include "tests/constant_time/operations.h"

namespace shieldfl::tests {

AmbiguousTotal::AmbiguousTotal(ckks::ParametersPointer parameters) : parameters_(std::move(parameters)) {
  const std::size_t degree = parameters_->facts().degree;
  std::vector<std::uint64_t> rows(parameters_->facts().block_words());
  // c0 + c1 s0 = m0 and c0 + c1 s1 = m1: so c1 = (m1 - m0) / (s1 - s0), point by point in NTT form. That s0
  // and s1 agree in a point is as unlikely as a random residue's being 0.
  for (std::size_t p = 0; p < parameters_->ntts().size(); ++p) {
    const ring::Ntt& ntt = parameters_->ntts()[p];
    const std::uint64_t q = ntt.modulus().value;
    const Row s0 = transformed_secret(0, p);
    const Row s1 = transformed_secret(1, p);
    Row m0 = noisy_message(0, p);
    Row m1 = noisy_message(1, p);
    ntt.forward(m0);
    ntt.forward(m1);
    const auto c0 = std::span(rows).subspan(p * degree, degree);
    const auto c1 = std::span(rows).subspan(rows.size() / 2 + p * degree, degree);
    for (std::size_t i = 0; i < degree; ++i) {
      const std::uint64_t difference = ring::add(s1[i], q - s0[i], q);
      const ring::Factor reciprocal = ring::make_factor(ring::inverse_vartime(difference, q), q);
      c1[i] = ring::multiply(ring::add(m1[i], q - m0[i], q), reciprocal, q);
      c0[i] = ring::add(m0[i], q - ring::multiply(c1[i], ring::make_factor(s0[i], q), q), q);
    }
    ntt.inverse(c0);
    ntt.inverse(c1);
  }
  write_frame(rows);
}

AmbiguousTotal::Row AmbiguousTotal::transformed_secret(int variant, std::size_t p) const {
  const ring::Ntt& ntt = parameters_->ntts()[p];
  std::mt19937_64 generator = secrets_of(variant);
  std::uniform_int_distribution<std::int64_t> distribution(-1, 1);
  Row row(ntt.degree());
  for (std::uint64_t& value : row) value = ring::residue(distribution(generator), ntt.modulus().value);
  ntt.forward(row);
  return row;
}

AmbiguousTotal::Row AmbiguousTotal::noisy_message(int variant, std::size_t p) const {
  const ckks::ParameterFacts& facts = parameters_->facts();
  const std::uint64_t q = facts.primes[p];
  std::mt19937_64 generator = secrets_of(variant);
  std::uniform_int_distribution<std::int64_t> value(-facts.max_magnitude(), facts.max_magnitude());
  std::uniform_int_distribution<std::int64_t> noise(-ring::kErrorCoins, ring::kErrorCoins);
  std::vector<std::int64_t> values(facts.values_per_block());
  for (std::int64_t& each : values) each = value(generator);
  Row row(facts.degree);
  for (std::uint64_t& coefficient : row) coefficient = ring::residue(noise(generator), q);
  rlwe::FieldPacking(parameters_->digits(), parameters_->facts().field_shape())
      .add_message(values, values.size(), p, row);
  return row;
}

void AmbiguousTotal::write_frame(std::vector<std::uint64_t>& rows) {
  const ckks::ParameterFacts& facts = parameters_->facts();
  ckks::Layout layout;
  layout.parameter_id = parameters_->id();
  layout.value_count = facts.values_per_block();
  const std::array<Id, 2> frame_ids = {Id{1}, Id{2}};
  FrameWriter writer = begin_frame(FrameKind::kCkksTotal, facts, layout, frame_ids);
  rlwe::pack_residues(parameters_->digits(), parameters_->facts().format(FrameKind::kCkksTotal), rows,
                      writer.reserve(facts.format(FrameKind::kCkksTotal).bytes()));
  frame_ = writer.finish();
  view_ = ckks::CiphertextView::parse(frame_, FrameKind::kCkksTotal, 1);
}

SecretVector<std::uint64_t> AmbiguousTotal::secret_rows(int variant) const {
  SecretVector<std::uint64_t> rows;
  rows.reserve(parameters_->facts().degree * parameters_->ntts().size());
  for (std::size_t p = 0; p < parameters_->ntts().size(); ++p) {
    const Row row = transformed_secret(variant, p);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return as_secret(rows);
}

std::shared_ptr<const ckks::SecretKey> AmbiguousTotal::secret_key(int variant) const {
  Seed seed;
  seed.bytes.fill(static_cast<std::uint8_t>(variant));
  mark_secret(seed.bytes.data(), seed.bytes.size());
  return std::make_shared<const ckks::SecretKey>(parameters_, secret_rows(variant), Id{}, seed);
}

}  // namespace shieldfl::tests
