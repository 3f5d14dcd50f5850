#include "ckks/seal_bridge.h"

#include <seal/seal.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "common/error.h"
#include "rlwe/moduli.h"

namespace shieldfl::ckks {
namespace {

std::vector<seal::Modulus> to_moduli(std::span<const std::uint64_t> primes) {
  return {primes.begin(), primes.end()};
}

seal::EncryptionParameters to_parameters(std::size_t degree, std::vector<seal::Modulus> moduli) {
  seal::EncryptionParameters parameters(seal::scheme_type::ckks);
  parameters.set_poly_modulus_degree(degree);
  parameters.set_coeff_modulus(std::move(moduli));
  return parameters;
}

// Throws unless the standard's table allows these primes at 128 bits.
seal::SEALContext secure_context(std::size_t degree, std::span<const std::uint64_t> primes) {
  seal::SEALContext context(to_parameters(degree, to_moduli(primes)), true, seal::sec_level_type::tc128);
  if (!context.parameters_set()) {
    throw Error(ErrorCode::kParameter,
                std::string("these ring parameters are refused: ") + context.parameter_error_message());
  }
  return context;
}

template <typename Vector>
Vector copy_rows(const std::uint64_t* data, std::size_t words) {
  return Vector(data, data + words);
}

}  // namespace

std::string seal_version() {
  return SEAL_VERSION_TEXT;
}

KeyMaterial generate_key_material(std::size_t degree, std::span<const std::uint64_t> primes) {
  const seal::SEALContext context = secure_context(degree, primes);
  seal::KeyGenerator generator(context);
  seal::PublicKey public_key;
  generator.create_public_key(public_key);
  // Keys live at the key level, which has every prime, also the one that SEAL reserves for key switching.
  const std::size_t words = degree * primes.size();
  return {copy_rows<SecretVector<std::uint64_t>>(generator.secret_key().data().data(), words),
          copy_rows<std::vector<std::uint64_t>>(public_key.data().data(0), words),
          copy_rows<std::vector<std::uint64_t>>(public_key.data().data(1), words)};
}

// The encoder works at data levels, which lack the last prime of a chain, so the chain gets a prime more. No
// key is ever made in this context, therefore its security level says nothing and is not checked.
struct SlotEncoder::Implementation {
  Implementation(std::size_t degree, std::span<const std::uint64_t> primes)
      : context(to_parameters(degree, with_spare(degree, primes)), true, seal::sec_level_type::none),
        encoder(context) {}

  static std::vector<seal::Modulus> with_spare(std::size_t degree, std::span<const std::uint64_t> primes) {
    auto moduli = to_moduli(primes);
    const std::vector<int> spare_bits(primes.size() + 1, 60);
    for (const std::uint64_t spare : rlwe::ntt_primes(degree, spare_bits)) {
      if (std::find(primes.begin(), primes.end(), spare) == primes.end()) {
        moduli.emplace_back(spare);
        return moduli;
      }
    }
    throw Error(ErrorCode::kInternal, "no spare prime for the slot encoder");
  }

  seal::SEALContext context;
  seal::CKKSEncoder encoder;
};

SlotEncoder::SlotEncoder(std::size_t degree, std::span<const std::uint64_t> primes)
    : implementation_(std::make_unique<const Implementation>(degree, primes)) {}
SlotEncoder::~SlotEncoder() = default;

// Plaintexts are secret until they are flooded: SEAL gets a memory pool for each call that is wiped with it.
void SlotEncoder::encode(std::span<const double> values, double scale, std::span<std::uint64_t> rows) const {
  const auto pool = seal::MemoryPoolHandle::New(true);
  seal::Plaintext plain(pool);
  std::vector<double> copy(values.begin(), values.end());
  implementation_->encoder.encode(copy, implementation_->context.first_parms_id(), scale, plain, pool);
  secure_wipe(copy.data(), copy.size() * sizeof copy[0]);
  std::copy_n(plain.data(), rows.size(), rows.begin());
}

void SlotEncoder::decode(std::span<const std::uint64_t> rows, double scale, std::span<double> values) const {
  const auto pool = seal::MemoryPoolHandle::New(true);
  seal::Plaintext plain(pool);
  plain.resize(rows.size());
  std::copy(rows.begin(), rows.end(), plain.data());
  plain.parms_id() = implementation_->context.first_parms_id();
  plain.scale() = scale;
  std::vector<double> decoded;
  implementation_->encoder.decode(plain, decoded, pool);
  std::copy_n(decoded.begin(), values.size(), values.begin());
}

}  // namespace shieldfl::ckks
