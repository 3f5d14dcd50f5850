#include "ckks/keys.h"

#include <algorithm>
#include <bit>

#include "ckks/ciphertext.h"
#include "ckks/noise_bound.h"
#include "common/error.h"
#include "common/taint.h"
#include "ring/sampler.h"

namespace shieldfl::ckks {
namespace {

std::vector<ring::PreparedRow> prepare(const Parameters& parameters, std::span<const std::uint64_t> rows) {
  const std::size_t degree = parameters.facts().degree;
  if (rows.size() != parameters.ntts().size() * degree) {
    throw Error(ErrorCode::kInternal, "a key needs one row of residues for each prime");
  }
  std::vector<ring::PreparedRow> factors;
  for (std::size_t p = 0; p < parameters.ntts().size(); ++p) {
    factors.push_back(parameters.ntts()[p].prepare(rows.subspan(p * degree, degree)));
  }
  return factors;
}

// What noise_bound.h takes for granted of a pair; a pair whose halves do not belong together fails as well.
bool within_limits(const KeyNorms& norms, std::size_t degree) {
  const auto n = static_cast<double>(degree);
  const auto most_weight = static_cast<std::int64_t>(kMaxSecretWeightPerDegree * n);
  const auto most_error = static_cast<std::int64_t>(kMaxKeyErrorNormPerDegree * n);
  // Below zero if one of the three is; which one stays secret.
  const std::int64_t least_room = (most_weight - static_cast<std::int64_t>(norms.secret_weight)) |
                                  (most_error - norms.error_norm) | (ring::kErrorCoins - norms.error_max);
  const bool within = least_room >= 0;
  declassify(&within, sizeof within);  // the pair is used, or it is refused with an error
  return within;
}

Id key_id_of(const Id& parameter_id, std::span<const std::uint64_t> rows0,
             std::span<const std::uint64_t> rows1) {
  std::vector<std::uint8_t> bytes(parameter_id.begin(), parameter_id.end());
  for (const auto& rows : {rows0, rows1}) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(rows.data());
    bytes.insert(bytes.end(), data, data + rows.size_bytes());
  }
  return digest(bytes);
}

// The coefficients of the secret, from its row for the first prime.
SecretVector<std::int64_t> secret_coefficients(const SecretKey& secret) {
  const ring::Ntt& ntt = secret.parameters()->ntts().front();
  SecretVector<std::uint64_t> row(secret.rows().begin(),
                                  secret.rows().begin() + static_cast<std::ptrdiff_t>(ntt.degree()));
  ntt.inverse(row);
  SecretVector<std::int64_t> coefficients(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) coefficients[i] = ring::centered(row[i], ntt.modulus().value);
  return coefficients;
}

}  // namespace

PublicKey::PublicKey(ParametersPointer parameters, std::vector<std::uint64_t> rows0,
                     std::vector<std::uint64_t> rows1)
    : parameters_(std::move(parameters)),
      rows0_(std::move(rows0)),
      rows1_(std::move(rows1)),
      factors0_(prepare(*parameters_, rows0_)),
      factors1_(prepare(*parameters_, rows1_)),
      id_(key_id_of(parameters_->id(), rows0_, rows1_)) {}

std::vector<std::uint8_t> PublicKey::to_frame() const {
  const ParameterFacts& facts = parameters_->facts();
  const auto encoded = facts.encode();
  const packed::BlockFormat format = facts.format(FrameKind::kCkksPublicKey);
  FrameWriter writer({FrameKind::kCkksPublicKey, parameters_->id(), id_}, encoded.size() + format.bytes());
  writer.put_bytes(encoded);
  std::vector<std::uint64_t> rows(rows0_);
  rows.insert(rows.end(), rows1_.begin(), rows1_.end());
  format.pack(rows, writer.reserve(format.bytes()));
  return writer.finish();
}

std::shared_ptr<const PublicKey> PublicKey::from_frame(std::span<const std::uint8_t> frame) {
  FrameReader reader(frame, FrameKind::kCkksPublicKey);
  const ParameterFacts facts = ParameterFacts::read(reader);
  if (facts.id() != reader.header().parameter_id) {
    throw Error(ErrorCode::kWireFormat,
                "the key's parameter id is not that of its parameters: it was altered");
  }
  const packed::BlockFormat format = facts.format(FrameKind::kCkksPublicKey);
  const auto packed = reader.take_bytes(format.bytes());
  reader.expect_end();
  format.check(packed, 1);
  std::vector<std::uint64_t> rows(facts.block_words());
  format.unpack(packed, rows);
  const auto rows0 = std::span(rows).first(rows.size() / 2);
  const auto rows1 = std::span(rows).last(rows.size() / 2);
  // Checked before the parameters are derived, which costs more than all of the above.
  if (key_id_of(facts.id(), rows0, rows1) != reader.header().key_id) {
    throw Error(ErrorCode::kWireFormat, "the key id is not that of the key: it was altered");
  }
  return std::make_shared<const PublicKey>(Parameters::from_facts(facts),
                                           std::vector<std::uint64_t>(rows0.begin(), rows0.end()),
                                           std::vector<std::uint64_t>(rows1.begin(), rows1.end()));
}

SecretKey::SecretKey(ParametersPointer parameters, SecretVector<std::uint64_t> rows, Id key_id,
                     const Seed& flooding_seed)
    : parameters_(std::move(parameters)),
      rows_(std::move(rows)),
      factors_(prepare(*parameters_, rows_)),
      key_id_(key_id),
      flooding_seed_(flooding_seed) {}

SecretKey::~SecretKey() = default;

SecretVector<std::uint8_t> SecretKey::export_secret() const {
  const auto coefficients = secret_coefficients(*this);
  SecretVector<std::uint8_t> exported;
  exported.reserve(coefficients.size() + kSeedBytes);
  for (const std::int64_t coefficient : coefficients)
    exported.push_back(static_cast<std::uint8_t>(coefficient));
  exported.insert(exported.end(), flooding_seed_.bytes.begin(), flooding_seed_.bytes.end());
  return exported;
}

std::shared_ptr<const SecretKey> SecretKey::import_secret(const PublicKey& public_key,
                                                          std::span<const std::uint8_t> exported) {
  const ParametersPointer& parameters = public_key.parameters();
  const std::size_t degree = parameters->facts().degree;
  const auto mismatch = [] {
    return Error(ErrorCode::kKeyMismatch, "the stored secret does not belong to the stored public key");
  };
  if (exported.size() != degree + kSeedBytes) throw mismatch();
  SecretVector<std::uint64_t> rows;
  rows.reserve(degree * parameters->ntts().size());
  for (const ring::Ntt& ntt : parameters->ntts()) {
    SecretVector<std::uint64_t> row(degree);
    for (std::size_t i = 0; i < degree; ++i) {
      row[i] = ring::residue(static_cast<std::int8_t>(exported[i]), ntt.modulus().value);
    }
    ntt.forward(row);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  Seed seed;
  std::copy_n(exported.begin() + static_cast<std::ptrdiff_t>(degree), kSeedBytes, seed.bytes.begin());
  auto secret = std::make_shared<const SecretKey>(parameters, std::move(rows), public_key.id(), seed);
  if (!within_limits(measure_keys(*secret, public_key), degree)) throw mismatch();
  return secret;
}

KeyNorms measure_keys(const SecretKey& secret, const PublicKey& public_key) {
  const Parameters& parameters = *secret.parameters();
  KeyNorms norms{0, 0, 0};
  const std::size_t degree = parameters.facts().degree;
  SecretVector<std::uint64_t> error(degree);
  for (std::size_t p = 0; p < parameters.ntts().size(); ++p) {
    const ring::Ntt& ntt = parameters.ntts()[p];
    const std::uint64_t q = ntt.modulus().value;
    const auto b = public_key.rows0().subspan(p * degree, degree);
    ntt.multiply(public_key.rows1().subspan(p * degree, degree), secret.factors()[p], error);  // a s
    for (std::size_t i = 0; i < degree; ++i) error[i] = ring::add(b[i], error[i], q);
    ntt.inverse(error);
    std::int64_t norm = 0;
    for (const std::uint64_t residue : error) {
      const std::int64_t e = std::clamp<std::int64_t>(ring::centered(residue, q), -(1 << 20), 1 << 20);
      norm += e * e;
      norms.error_max = std::max(norms.error_max, std::max(e, -e));
    }
    norms.error_norm = std::max(norms.error_norm, norm);
  }
  for (const std::int64_t s : secret_coefficients(secret)) norms.secret_weight += s != 0 ? 1 : 0;
  return norms;
}

KeyPair generate_keys(const ParametersPointer& parameters, SeedSource& seeds) {
  constexpr int kAttempts = 8;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    KeyMaterial material = generate_key_material(parameters->facts().degree, parameters->facts().primes);
    auto public_key = std::make_shared<const PublicKey>(parameters, std::move(material.public0),
                                                        std::move(material.public1));
    auto secret_key = std::make_shared<const SecretKey>(parameters, std::move(material.secret),
                                                        public_key->id(), seeds.next());
    if (within_limits(measure_keys(*secret_key, *public_key), parameters->facts().degree)) {
      return {std::move(public_key), std::move(secret_key)};
    }
  }
  throw Error(ErrorCode::kInternal, "SEAL's keys exceed the noise limits: is it a build with other noise?");
}

}  // namespace shieldfl::ckks
