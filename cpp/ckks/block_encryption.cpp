#include "ckks/block_encryption.h"

#include "ring/modulus.h"
#include "ring/sampler.h"

namespace shieldfl::ckks {

BlockEncryption::BlockEncryption(const PublicKey& key)
    : key_(key),
      u_(key.parameters()->facts().degree),
      e0_(u_.size()),
      e1_(u_.size()),
      transformed_u_(u_.size()),
      rows_(key.parameters()->facts().block_words()) {}

std::span<const std::uint64_t> BlockEncryption::encrypt(RandomStream& stream, const AddMessage& add_message) {
  const Parameters& parameters = *key_.parameters();
  const std::size_t degree = parameters.facts().degree;
  ring::sample_ternary(stream, u_);
  ring::sample_error(stream, e0_);
  ring::sample_error(stream, e1_);
  for (std::size_t p = 0; p < parameters.ntts().size(); ++p) {
    const ring::Ntt& ntt = parameters.ntts()[p];
    const std::uint64_t q = ntt.modulus().value;
    for (std::size_t i = 0; i < degree; ++i) transformed_u_[i] = ring::residue(u_[i], q);
    ntt.forward(transformed_u_);

    const auto half = [&](const std::vector<ring::Factor>& factors, const SecretVector<std::int8_t>& error,
                          std::span<std::uint64_t> row) {
      for (std::size_t i = 0; i < degree; ++i) {
        row[i] = ring::multiply(transformed_u_[i], factors[p * degree + i], q);
      }
      ntt.inverse(row);
      for (std::size_t i = 0; i < degree; ++i) row[i] = ring::add(row[i], ring::residue(error[i], q), q);
    };
    const std::size_t primes = parameters.ntts().size();
    const auto row0 = std::span(rows_).subspan(p * degree, degree);
    half(key_.factors0(), e0_, row0);
    half(key_.factors1(), e1_, std::span(rows_).subspan((primes + p) * degree, degree));
    add_message(p, row0);
  }
  return rows_;
}

}  // namespace shieldfl::ckks
