#include "ckks/decryptor.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "ckks/flooding.h"
#include "ckks/packing.h"
#include "common/error.h"
#include "common/secure_memory.h"
#include "parallel/parallel_for.h"
#include "ring/modulus.h"

namespace shieldfl::ckks {

Decryptor::Decryptor(std::shared_ptr<const SecretKey> key) : key_(std::move(key)) {}

void Decryptor::check(const CiphertextView& total) const {
  if (total.kind != FrameKind::kCkksTotal) {
    throw Error(ErrorCode::kPolicy, "only totals are opened, never a single client's batch");
  }
  if (total.layout.parameter_id != key_->parameters()->id()) {
    throw Error(ErrorCode::kParameter, "the total was made with other parameters than this authority's");
  }
  if (total.layout.key_id != key_->key_id()) {
    throw Error(ErrorCode::kKeyMismatch, "the total was made under another authority's key");
  }
}

void Decryptor::decrypt_block(const CiphertextView& total, std::size_t block,
                              std::span<std::uint64_t> rows) const {
  const ParameterFacts& facts = key_->parameters()->facts();
  const std::size_t half = facts.block_words() / 2;
  std::vector<std::uint64_t> ciphertext(facts.block_words());
  total.unpack_block(block, ciphertext);
  for (std::size_t p = 0; p < facts.primes.size(); ++p) {
    const ring::Ntt& ntt = key_->parameters()->ntts()[p];
    const std::uint64_t q = ntt.modulus().value;
    const auto row = rows.subspan(p * facts.degree, facts.degree);
    std::copy_n(ciphertext.begin() + static_cast<std::ptrdiff_t>(half + p * facts.degree), facts.degree,
                row.begin());
    ntt.forward(row);
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = ring::multiply(row[i], key_->factors()[p * facts.degree + i], q);
    }
    ntt.inverse(row);
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = ring::add(row[i], ciphertext[p * facts.degree + i], q);
  }
}

OpenedSums Decryptor::open_all(const CiphertextView& total, std::size_t threads, bool flooded) const {
  check(total);
  const Parameters& parameters = *key_->parameters();
  const ParameterFacts& facts = parameters.facts();
  const std::uint64_t count = total.layout.field_count();
  const bool exact = facts.packing == Packing::kExact;
  const Seed seed = exact || !flooded ? Seed{} : flooding_seed_for(*key_, total);
  const ExactPacking packing(parameters);
  std::vector<double> values(count);
  std::atomic<bool> valid = true;
  parallel_for(
      block_count(facts, total.layout), resolve_threads(threads), 1, [&](std::size_t begin, std::size_t end) {
        SecretVector<std::uint64_t> rows(facts.block_words() / 2);
        SecretVector<std::int64_t> sums;
        for (std::size_t block = begin; block < end; ++block) {
          const std::uint64_t first = block * facts.values_per_block();
          const auto out = std::span(values).subspan(
              first, std::min<std::uint64_t>(facts.values_per_block(), count - first));
          decrypt_block(total, block, rows);
          if (exact) {
            sums.resize(out.size());
            if (!packing.read_sums(rows, total.frame_ids.size(), sums)) valid = false;
            for (std::size_t i = 0; i < out.size(); ++i) {
              out[i] = std::ldexp(static_cast<double>(sums[i]), -static_cast<int>(facts.fraction_bits));
            }
            continue;
          }
          if (flooded) add_flooding(facts, seed, block, rows);
          for (std::size_t p = 0; p < facts.primes.size(); ++p) {
            parameters.ntts()[p].forward(std::span(rows).subspan(p * facts.degree, facts.degree));
          }
          parameters.slot_encoder().decode(rows, std::ldexp(1.0, facts.log2_scale), out);
        }
      });
  if (!valid) {
    throw Error(ErrorCode::kWireFormat,
                "the total does not open to sums of values in range: a batch in it was altered, or made by a "
                "client that does not follow the protocol");
  }
  OpenedSums opened{std::move(values), std::nullopt};
  if (total.layout.weighted) {
    opened.weight_sum = opened.values.back();
    opened.values.pop_back();
  }
  return opened;
}

OpenedSums Decryptor::open(const CiphertextView& total, std::size_t threads) const {
  return open_all(total, threads, true);
}

OpenedSums Decryptor::insecure_open_unflooded(const CiphertextView& total, std::size_t threads) const {
  return open_all(total, threads, false);
}

}  // namespace shieldfl::ckks
