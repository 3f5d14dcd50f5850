#include "paillier/public_key.h"

#include <algorithm>
#include <bitset>
#include <string>

#include "common/error.h"
#include "paillier/big_endian.h"
#include "paillier/big_integer.h"
#include "paillier/primes.h"

namespace shieldfl::paillier {
namespace {

constexpr std::uint64_t kSmallFactorLimit = 1U << 16;

bool has_small_factor(const BigInteger& number) {
  std::bitset<kSmallFactorLimit> composite;
  for (std::uint64_t divisor = 2; divisor < kSmallFactorLimit; ++divisor) {
    if (composite[divisor]) continue;
    if (number.modulo_word(divisor) == 0) return true;
    for (std::uint64_t multiple = divisor * divisor; multiple < kSmallFactorLimit; multiple += divisor) {
      composite[multiple] = true;
    }
  }
  return false;
}

void check_modulus(const Parameters& parameters, const BigInteger& n) {
  require(n.bit_length() == parameters.facts().key_bits, "the public key's modulus has to have exactly " +
                                                             std::to_string(parameters.facts().key_bits) +
                                                             " bits");
  require(
      !has_small_factor(n) && !n.is_perfect_square() && !n.is_probable_prime(kPrimalityRounds),
      "the public key's modulus is not the product of two large primes: ask the key authority for another");
}

void check_base(const Parameters& parameters, const BigInteger& n, const BigInteger& h) {
  if (parameters.facts().randomizer == Randomizer::kClassical) {
    require(h == BigInteger(0), "a key for classical randomisers has no base");
    return;
  }
  const BigInteger one(1);
  require(one < h && h < n - one && greatest_common_divisor(h, n) == one && jacobi_symbol(h, n) == 1,
          "the public key's base is not one that hides anything: ask the key authority for another key");
}

// Parameters, n and h, as they travel and as the key's identifier is made of them.
std::vector<std::uint8_t> encode(const Parameters& parameters, std::span<const std::uint64_t> modulus,
                                 std::span<const std::uint64_t> base) {
  std::vector<std::uint8_t> bytes = parameters.facts().encode();
  bytes.resize(ParameterFacts::kEncodedBytes + 2 * parameters.modulus_bytes());
  const auto numbers = std::span(bytes).subspan(ParameterFacts::kEncodedBytes);
  to_big_endian(modulus, numbers.first(parameters.modulus_bytes()));
  to_big_endian(base, numbers.last(parameters.modulus_bytes()));
  return bytes;
}

}  // namespace

PublicKey::PublicKey(const Parameters& parameters, std::vector<std::uint64_t> modulus,
                     std::vector<std::uint64_t> base, EngineKind engine)
    : parameters_(parameters), modulus_(std::move(modulus)), base_(std::move(base)) {
  require(modulus_.size() == parameters_.modulus_words() && base_.size() == modulus_.size(),
          "the public key's numbers are not of the length that key_bits states");
  const BigInteger n = BigInteger::from_words(modulus_);
  check_modulus(parameters_, n);
  check_base(parameters_, n, BigInteger::from_words(base_));
  const auto square = (n * n).to_words(parameters_.ciphertext_words());
  modulus_square_.assign(square.begin(), square.end());
  engine_ = Engine::make(engine, modulus_);
  id_ = digest(encode(parameters_, modulus_, base_));
}

PublicKey::~PublicKey() {
  delete fixed_base_.load(std::memory_order_acquire);
}

const FixedBase& PublicKey::fixed_base() const {
  if (parameters_.facts().randomizer != Randomizer::kShortExponent) {
    throw Error(ErrorCode::kInternal, "there is no base where randomisers are classical");
  }
  const FixedBase* kept = fixed_base_.load(std::memory_order_acquire);
  if (kept != nullptr) return *kept;
  std::vector<std::uint64_t> power(engine_->pair_words());
  std::ranges::copy(base_, power.begin());  // h is below n: as a pair it has no upper half
  engine_->power_public(power, modulus_, power);
  auto made = engine_->fixed_base(power, parameters_.exponent_bits());
  if (fixed_base_.compare_exchange_strong(kept, made.get(), std::memory_order_acq_rel))
    return *made.release();
  return *kept;
}

std::vector<std::uint8_t> PublicKey::to_frame() const {
  const auto body = encode(parameters_, modulus_, base_);
  FrameWriter writer({FrameKind::kPaillierPublicKey, parameters_.id(), id_}, body.size());
  writer.put_bytes(body);
  return writer.finish();
}

std::shared_ptr<const PublicKey> PublicKey::from_frame(std::span<const std::uint8_t> frame,
                                                       EngineKind engine) {
  FrameReader reader(frame, FrameKind::kPaillierPublicKey);
  const Parameters parameters = Parameters::read(reader);
  std::vector<std::uint64_t> modulus(parameters.modulus_words());
  std::vector<std::uint64_t> base(parameters.modulus_words());
  from_big_endian(reader.take_bytes(parameters.modulus_bytes()), modulus);
  from_big_endian(reader.take_bytes(parameters.modulus_bytes()), base);
  reader.expect_end();
  // Before the numbers are checked, which costs more than all of the above.
  if (reader.header().parameter_id != parameters.id() ||
      reader.header().key_id != digest(encode(parameters, modulus, base))) {
    throw Error(ErrorCode::kWireFormat,
                "the key's identifiers are not those of its contents: it was altered");
  }
  return std::make_shared<const PublicKey>(parameters, std::move(modulus), std::move(base), engine);
}

}  // namespace shieldfl::paillier
