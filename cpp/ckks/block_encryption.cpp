#include "ckks/block_encryption.h"

#include <cmath>

#include "ckks/ciphertext.h"
#include "common/taint.h"
#include "common/verify.h"
#include "ring/sampler.h"
#include "rlwe/packed_digits.h"

namespace shieldfl::ckks {

BlockEncryption::BlockEncryption(const PublicKey& key)
    : key_(key),
      parameters_(*key.parameters()),
      kernels_(ring::row_kernels(instruction_set())),
      packing_(parameters_.digits(), parameters_.facts().field_shape()),
      format_(parameters_.facts().format(FrameKind::kCkksBatch)),
      u_(parameters_.facts().degree),
      e0_(u_.size()),
      e1_(u_.size()),
      transformed_u_(u_.size()),
      rows_(parameters_.facts().block_words()) {}

void BlockEncryption::encrypt(RandomStream& stream, std::span<const std::int64_t> values, std::size_t count,
                              std::span<std::uint8_t> out) {
  VERIFY(values.size() == parameters_.facts().values_per_block() && count <= values.size());
  VERIFY(out.size() == format_.bytes());
  ring::sample_ternary(stream, u_);
  ring::sample_error(stream, e0_);
  ring::sample_error(stream, e1_);
  if (parameters_.facts().packing == Packing::kSlots) transform_message(values.first(count));
  for (std::size_t p = 0; p < parameters_.ntts().size(); ++p) encrypt_prime(p, values, count);
  rlwe::pack_residues(parameters_.digits(), format_, rows_, out);
  // A ciphertext goes to the aggregator; before that, its checksum is taken by table look-ups.
  declassify(out.data(), out.size());
}

void BlockEncryption::transform_message(std::span<const std::int64_t> values) {
  const ParameterFacts& facts = parameters_.facts();
  const double unit = std::ldexp(1.0, -static_cast<int>(facts.fraction_bits));
  SecretVector<double> reals(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) reals[i] = static_cast<double>(values[i]) * unit;
  message_.resize(rows_.size() / 2);
  parameters_.slot_encoder().encode(reals, std::ldexp(1.0, facts.log2_scale), message_);
}

void BlockEncryption::encrypt_prime(std::size_t p, std::span<const std::int64_t> values, std::size_t count) {
  const bool exact = parameters_.facts().packing == Packing::kExact;
  const std::size_t degree = u_.size();
  const ring::Ntt& ntt = parameters_.ntts()[p];
  const std::uint64_t q = ntt.modulus().value;
  kernels_.from_samples(u_.data(), degree, q, transformed_u_.data());
  ntt.forward(transformed_u_);

  const auto row0 = std::span(rows_).subspan(p * degree, degree);
  ntt.multiply(transformed_u_, key_.factors0()[p], row0);
  if (!exact) kernels_.add_row(message_.data() + p * degree, degree, q, row0.data());
  ntt.inverse(row0);
  kernels_.add_samples(e0_.data(), degree, q, row0.data());
  if (exact) packing_.add_message(values, count, p, row0);

  const auto row1 = std::span(rows_).subspan(rows_.size() / 2 + p * degree, degree);
  ntt.multiply(transformed_u_, key_.factors1()[p], row1);
  ntt.inverse(row1);
  kernels_.add_samples(e1_.data(), degree, q, row1.data());
}

}  // namespace shieldfl::ckks
