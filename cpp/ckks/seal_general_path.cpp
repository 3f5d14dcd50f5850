#include "ckks/seal_general_path.h"

#include <seal/seal.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "common/error.h"
#include "parallel/parallel_for.h"

namespace shieldfl::ckks {
namespace {

seal::EncryptionParameters parameters_of(std::size_t degree, std::span<const int> prime_bits) {
  try {
    seal::EncryptionParameters parameters(seal::scheme_type::ckks);
    parameters.set_poly_modulus_degree(degree);
    parameters.set_coeff_modulus(seal::CoeffModulus::Create(degree, {prime_bits.begin(), prime_bits.end()}));
    return parameters;
  } catch (const std::logic_error& error) {
    throw Error(ErrorCode::kParameter, std::string("SEAL refuses these parameters: ") + error.what());
  }
}

seal::SEALContext checked_context(std::size_t degree, std::span<const int> prime_bits) {
  seal::SEALContext context(parameters_of(degree, prime_bits), true, seal::sec_level_type::tc128);
  if (!context.parameters_set()) {
    throw Error(ErrorCode::kParameter,
                std::string("SEAL refuses these parameters: ") + context.parameter_error_message());
  }
  return context;
}

seal::PublicKey public_key_of(const seal::KeyGenerator& generator) {
  seal::PublicKey key;
  generator.create_public_key(key);
  return key;
}

}  // namespace

struct SealCiphertexts::Implementation {
  std::vector<seal::Ciphertext> ciphertexts;
  std::size_t values = 0;
};

SealCiphertexts::SealCiphertexts(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
SealCiphertexts::SealCiphertexts(SealCiphertexts&&) noexcept = default;
SealCiphertexts& SealCiphertexts::operator=(SealCiphertexts&&) noexcept = default;
SealCiphertexts::~SealCiphertexts() = default;

std::size_t SealSavedCiphertexts::bytes() const {
  std::size_t sum = 0;
  for (const auto& buffer : buffers_) sum += buffer.size();
  return sum;
}

struct SealGeneralPath::Implementation {
  Implementation(std::size_t degree, std::span<const int> prime_bits, int log2_scale)
      : context(checked_context(degree, prime_bits)),
        generator(context),
        encoder(context),
        encryptor(context, public_key_of(generator)),
        evaluator(context),
        scale(std::ldexp(1.0, log2_scale)) {}

  void load(std::span<const std::uint8_t> buffer, seal::Ciphertext& ciphertext) const {
    ciphertext.load(context, reinterpret_cast<const seal::seal_byte*>(buffer.data()), buffer.size());
  }

  seal::SEALContext context;
  seal::KeyGenerator generator;
  seal::CKKSEncoder encoder;
  seal::Encryptor encryptor;
  seal::Evaluator evaluator;
  double scale;
};

SealGeneralPath::SealGeneralPath(std::size_t degree, std::span<const int> prime_bits, int log2_scale)
    : implementation_(std::make_unique<Implementation>(degree, prime_bits, log2_scale)) {}
SealGeneralPath::~SealGeneralPath() = default;

std::size_t SealGeneralPath::values_per_ciphertext() const {
  return implementation_->encoder.slot_count();
}

SealCiphertexts SealGeneralPath::encrypt(std::span<const float> values, std::size_t threads) const {
  const std::size_t slots = values_per_ciphertext();
  auto result = std::make_unique<SealCiphertexts::Implementation>();
  result->values = values.size();
  result->ciphertexts.resize((values.size() + slots - 1) / slots);
  parallel_for(result->ciphertexts.size(), resolve_threads(threads), 1,
               [&](std::size_t begin, std::size_t end) {
                 std::vector<double> slot_values;
                 seal::Plaintext plain;
                 for (std::size_t i = begin; i < end; ++i) {
                   const auto part = values.subspan(i * slots, std::min(slots, values.size() - i * slots));
                   slot_values.assign(part.begin(), part.end());
                   implementation_->encoder.encode(slot_values, implementation_->scale, plain);
                   implementation_->encryptor.encrypt(plain, result->ciphertexts[i]);
                 }
               });
  return SealCiphertexts(std::move(result));
}

SealSavedCiphertexts SealGeneralPath::save(const SealCiphertexts& ciphertexts, std::size_t threads) const {
  const auto& from = ciphertexts.implementation().ciphertexts;
  SealSavedCiphertexts saved;
  saved.values_ = ciphertexts.implementation().values;
  saved.buffers_.resize(from.size());
  parallel_for(from.size(), resolve_threads(threads), 1, [&](std::size_t begin, std::size_t end) {
    constexpr auto kUncompressed = seal::compr_mode_type::none;
    for (std::size_t i = begin; i < end; ++i) {
      auto& buffer = saved.buffers_[i];
      buffer.resize(static_cast<std::size_t>(from[i].save_size(kUncompressed)));
      const auto size =
          from[i].save(reinterpret_cast<seal::seal_byte*>(buffer.data()), buffer.size(), kUncompressed);
      buffer.resize(static_cast<std::size_t>(size));
    }
  });
  return saved;
}

SealCiphertexts SealGeneralPath::load(const SealSavedCiphertexts& saved, std::size_t threads) const {
  auto result = std::make_unique<SealCiphertexts::Implementation>();
  result->values = saved.values_;
  result->ciphertexts.resize(saved.buffers_.size());
  parallel_for(saved.buffers_.size(), resolve_threads(threads), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      implementation_->load(saved.buffers_[i], result->ciphertexts[i]);
  });
  return SealCiphertexts(std::move(result));
}

void SealGeneralPath::load_and_add(const SealSavedCiphertexts& saved, SealCiphertexts& sum,
                                   std::size_t threads) const {
  auto& into = sum.implementation().ciphertexts;
  if (into.size() != saved.buffers_.size()) {
    throw Error(ErrorCode::kParameter, "the sum has " + std::to_string(into.size()) +
                                           " ciphertexts, what is added " +
                                           std::to_string(saved.buffers_.size()));
  }
  parallel_for(into.size(), resolve_threads(threads), 1, [&](std::size_t begin, std::size_t end) {
    seal::Ciphertext loaded;
    for (std::size_t i = begin; i < end; ++i) {
      implementation_->load(saved.buffers_[i], loaded);
      implementation_->evaluator.add_inplace(into[i], loaded);
    }
  });
}

std::vector<double> SealGeneralPath::open(const SealCiphertexts& sum, std::size_t threads) const {
  const auto& from = sum.implementation();
  const std::size_t slots = values_per_ciphertext();
  std::vector<double> values(from.values);
  parallel_for(from.ciphertexts.size(), resolve_threads(threads), 1, [&](std::size_t begin, std::size_t end) {
    // A decryptor grows its powers of the key on demand, which is why each range has its own.
    seal::Decryptor decryptor(implementation_->context, implementation_->generator.secret_key());
    seal::Plaintext plain;
    std::vector<double> slot_values;
    for (std::size_t i = begin; i < end; ++i) {
      decryptor.decrypt(from.ciphertexts[i], plain);
      implementation_->encoder.decode(plain, slot_values);
      const std::size_t count = std::min(slots, values.size() - i * slots);
      std::copy_n(slot_values.begin(), count, values.begin() + static_cast<std::ptrdiff_t>(i * slots));
    }
  });
  return values;
}

}  // namespace shieldfl::ckks
