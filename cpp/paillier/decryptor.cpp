#include "paillier/decryptor.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "common/error.h"
#include "common/huge_pages.h"
#include "common/secure_memory.h"
#include "common/taint.h"
#include "paillier/packing.h"
#include "parallel/parallel_for.h"

namespace shieldfl::paillier {
namespace {

// Takes the sums of some ciphertexts' plaintexts apart, and writes them times 2^-fraction_bits. Whether they
// are in range.
bool read_sums(const PublicKey& key, std::span<const std::uint64_t> plaintexts, std::uint64_t total_weight,
               std::span<double> values) {
  const Parameters& parameters = key.parameters();
  const double unit = parameters.fixed_point().to_real(1);
  SecretVector<std::int64_t> sums(parameters.values_per_ciphertext());
  bool in_range = true;
  for (; !values.empty(); plaintexts = plaintexts.subspan(parameters.modulus_words())) {
    const auto here = std::span(sums).first(std::min(sums.size(), values.size()));
    const auto plaintext = plaintexts.first(parameters.modulus_words());
    in_range &= unpack_sums(parameters, plaintext, key.modulus(), total_weight, here);
    std::ranges::transform(here, values.begin(),
                           [&](std::int64_t sum) { return static_cast<double>(sum) * unit; });
    values = values.subspan(here.size());
  }
  return in_range;
}

}  // namespace

Decryptor::Decryptor(std::shared_ptr<const PublicKey> public_key, std::shared_ptr<const SecretKey> key)
    : public_key_(std::move(public_key)), key_(std::move(key)) {
  if (key_->key_id() != public_key_->id()) {
    throw Error(ErrorCode::kKeyMismatch, "the secret key does not belong to this public key");
  }
}

void Decryptor::check(const CiphertextView& total) const {
  if (total.kind != FrameKind::kPaillierTotal) {
    throw Error(ErrorCode::kPolicy, "only totals are opened, never a single client's batch");
  }
  if (total.layout.parameter_id != public_key_->parameters().id()) {
    throw Error(ErrorCode::kParameter, "the total was made with other parameters than this authority's");
  }
  if (total.layout.key_id != key_->key_id()) {
    throw Error(ErrorCode::kKeyMismatch, "the total was made under another authority's key");
  }
}

OpenedSums Decryptor::open(const CiphertextView& total, std::size_t threads) const {
  check(total);
  return open_total(
      *public_key_, total,
      [this](std::span<const std::uint64_t> residues, std::span<std::uint64_t> plaintexts) {
        key_->decrypt(residues, plaintexts);
      },
      threads);
}

OpenedSums open_total(const PublicKey& public_key, const CiphertextView& total, const Decrypt& decrypt,
                      std::size_t threads) {
  check_residues(total, public_key, threads);
  const Parameters& parameters = public_key.parameters();
  const std::size_t per_block = parameters.values_per_ciphertext();
  const std::uint64_t count = total.layout.field_count();
  constexpr std::size_t batch = SecretKey::kBatchSize;
  std::vector<double> values;
  values.reserve(count);
  prefer_huge_pages(values.data(), count * sizeof(double));
  values.resize(count);
  std::atomic<bool> valid = true;
  std::atomic<bool> faulty = false;
  parallel_for(block_count(parameters, total.layout), resolve_threads(threads), batch,
               [&](std::size_t begin, std::size_t end) {
                 OpeningCheck opening_check(public_key);
                 std::vector<std::uint64_t> residues(batch * parameters.ciphertext_words());
                 SecretVector<std::uint64_t> plaintexts(batch * parameters.modulus_words());
                 for (std::size_t first = begin; first < end; first += batch) {
                   const std::size_t blocks = std::min(batch, end - first);
                   const auto in = std::span(residues).first(blocks * parameters.ciphertext_words());
                   const auto opened = std::span(plaintexts).first(blocks * parameters.modulus_words());
                   const auto out = std::span(values).subspan(
                       first * per_block,
                       std::min<std::uint64_t>(blocks * per_block, count - first * per_block));
                   read_residues(total, first, blocks, in);
                   decrypt(in, opened);
                   opening_check.add(in, opened);
                   const bool in_range = read_sums(public_key, opened, total.total_weight, out);
                   // Whoever brings the total is told: by the sums, or by the error.
                   declassify(&in_range, sizeof in_range);
                   if (!in_range) valid = false;
                 }
                 if (!opening_check.passes(decrypt)) faulty = true;
               });
  if (faulty || !valid) secure_wipe(values.data(), values.size() * sizeof values[0]);
  if (faulty) {
    throw Error(
        ErrorCode::kInternal,
        "the machine computed wrongly while it opened the total, and the sums are withheld since they "
        "could give the secret key away: have the machine checked, and open the total again");
  }
  if (!valid) {
    throw Error(ErrorCode::kWireFormat,
                "the total does not open to sums of values in range: a batch in it was altered, or made by a "
                "client that does not follow the protocol");
  }
  OpenedSums opened{std::move(values), std::nullopt};
  if (total.layout.weighted) {
    opened.weight_sum = parameters.fixed_point().weight_from_value(opened.values.back());
    opened.values.pop_back();
  }
  return opened;
}

}  // namespace shieldfl::paillier
