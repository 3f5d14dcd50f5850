#include "ckks/decryptor.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "ckks/block_reader.h"
#include "ckks/flooding.h"
#include "common/error.h"
#include "common/huge_pages.h"
#include "common/secure_memory.h"
#include "common/taint.h"
#include "parallel/parallel_for.h"
#include "ring/row_kernels.h"
#include "rlwe/field_packing.h"
#include "rlwe/packed_digits.h"

namespace shieldfl::ckks {
namespace {

// Whether slots can be the sums of `clients` values in range. Flooding gives a slot a standard deviation of a
// sixteenth of a unit in the last place at most (docs/reference/packings-reference.md): a whole one is never
// it.
bool are_sums(const ParameterFacts& facts, std::uint64_t clients, std::span<const double> slots) {
  const double unit = facts.fixed_point().to_real(1);
  const double limit = unit * (static_cast<double>(clients) * static_cast<double>(facts.max_magnitude()) + 1);
  bool in_range = true;
  // A number that is none compares as false.
  for (const double slot : slots) in_range &= std::abs(slot) <= limit;
  return in_range;
}

}  // namespace

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

void Decryptor::decrypt(std::span<std::uint64_t> ciphertext) const {
  const std::size_t degree = key_->parameters()->facts().degree;
  for (std::size_t p = 0; p < key_->parameters()->ntts().size(); ++p) {
    const ring::Ntt& ntt = key_->parameters()->ntts()[p];
    const auto row0 = ciphertext.subspan(p * degree, degree);
    const auto row1 = ciphertext.subspan(ciphertext.size() / 2 + p * degree, degree);
    ntt.forward(row1);
    ntt.multiply(row1, key_->factors()[p], row1);
    ntt.inverse(row1);
    ring::row_kernels(instruction_set()).add_row(row1.data(), degree, ntt.modulus().value, row0.data());
  }
}

OpenedSums Decryptor::open_all(const CiphertextView& total, std::size_t threads, bool flooded) const {
  check(total);
  const Parameters& parameters = *key_->parameters();
  const ParameterFacts& facts = parameters.facts();
  const std::uint64_t count = total.layout.field_count();
  const bool exact = facts.packing == Packing::kExact;
  const Seed seed = exact || !flooded ? Seed{} : flooding_seed_for(*key_, total);
  std::vector<double> values;
  values.reserve(count);
  prefer_huge_pages(values.data(), count * sizeof(double));
  values.resize(count);
  std::atomic<bool> valid = true;
  const std::size_t blocks = block_count(facts, total.layout);
  parallel_for(blocks, threads_for(threads, blocks, rlwe::kBlocksWorthEncrypting), 1,
               [&](std::size_t begin, std::size_t end) {
                 const BlockReader reader(total);
                 rlwe::FieldPacking packing(parameters.digits(), facts.field_shape());
                 SecretVector<std::uint64_t> ciphertext(facts.block_words());
                 const auto rows = std::span(ciphertext).first(ciphertext.size() / 2);
                 for (std::size_t block = begin; block < end; ++block) {
                   const std::uint64_t first = block * facts.values_per_block();
                   const auto out = std::span(values).subspan(
                       first, std::min<std::uint64_t>(facts.values_per_block(), count - first));
                   reader.read(block, ciphertext);
                   decrypt(ciphertext);
                   if (exact) {
                     const bool in_range = packing.read_sums(rows, total.frame_ids.size(), 0, out);
                     // Whoever brings the total is told: by the sums, or by the error.
                     declassify(&in_range, sizeof in_range);
                     if (!in_range) valid = false;
                     continue;
                   }
                   if (flooded) add_flooding(facts, seed, block, rows);
                   for (std::size_t p = 0; p < facts.primes.size(); ++p) {
                     parameters.ntts()[p].forward(rows.subspan(p * facts.degree, facts.degree));
                   }
                   parameters.slot_encoder().decode(rows, std::ldexp(1.0, facts.log2_scale), out);
                   if (!are_sums(facts, total.frame_ids.size(), out)) valid = false;
                 }
               });
  if (!valid) {
    secure_wipe(values.data(), values.size() * sizeof values[0]);
    throw Error(ErrorCode::kWireFormat,
                "the total does not open to sums of values in range: a batch in it was altered, or made by a "
                "client that does not follow the protocol");
  }
  OpenedSums opened{std::move(values), std::nullopt};
  if (total.layout.weighted) {
    opened.weight_sum = facts.fixed_point().weight_from_value(opened.values.back());
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
