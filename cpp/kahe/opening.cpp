#include <algorithm>
#include <atomic>

#include "common/error.h"
#include "common/huge_pages.h"
#include "common/secure_memory.h"
#include "common/taint.h"
#include "kahe/frame_secret.h"
#include "kahe/sum_key.h"
#include "parallel/parallel_for.h"
#include "ring/row_kernels.h"
#include "rlwe/block_format.h"

namespace shieldfl::kahe {
namespace {

void check(const PublicKey& key, const CiphertextView& total, const Digest& total_digest,
           const SumKey& sum_key) {
  if (total.kind != FrameKind::kKaheTotal) {
    throw Error(ErrorCode::kPolicy, "only totals are opened, never a single client's batch");
  }
  const SumContext context = context_of(total.head, key);
  if (sum_key.parameter_id() != total.head.layout.parameter_id) {
    throw Error(ErrorCode::kParameter, "the sum key was made with other parameters than this session's");
  }
  if (sum_key.key_id() != total.head.layout.key_id) {
    throw Error(ErrorCode::kKeyMismatch, "the sum key was made in another session");
  }
  if (sum_key.sum() != sum_digest(context, total.head.participants)) {
    throw Error(ErrorCode::kKeyMismatch,
                "the sum key is for another list of clients, round or selection of positions than the total");
  }
  if (sum_key.total_digest() != total_digest) {
    throw Error(ErrorCode::kKeyMismatch,
                "the sum key is for another total: this one was changed after the authority's answer");
  }
  // Stated clients bound the coefficients, which have to be below every prime.
  const std::size_t secrets = secret_count(block_count(total.head.facts, total.head.layout));
  if (sum_key.clients() != total.head.participants.size() || sum_key.degree() != total.head.facts.degree ||
      sum_key.coefficients().size() != secrets * total.head.facts.degree) {
    throw Error(ErrorCode::kWireFormat,
                "the sum key is not as long as its total takes, or states other clients: it was altered");
  }
}

// Opens the ciphertexts of a total. A thread's scratch space, wiped in the end. Refers to what it is given.
class BlockOpening {
 public:
  BlockOpening(const PublicKey& key, const CiphertextView& total, const SumKey& sum_key)
      : key_(key),
        parameters_(*key.parameters()),
        total_(total),
        sum_key_(sum_key),
        kernels_(ring::row_kernels(instruction_set())),
        packing_(parameters_.digits(), total.head.facts.field_shape()),
        rows_(parameters_.digits().words()),
        product_(total.head.facts.degree) {
    // Unpacking takes the middle of what batches left out, which is 1/2 too much for each on average.
    const std::uint64_t too_much =
        total.head.facts.dropped_bits == 0 ? 0 : total.head.participants.size() / 2;
    for (const std::uint64_t q : total.head.facts.primes) {
      corrections_.insert(corrections_.end(), total.head.facts.degree, (q - too_much % q) % q);
    }
  }

  // Whether these can be sums.
  bool open(std::size_t block, std::span<double> sums) {
    const std::size_t degree = total_.head.facts.degree;
    use_secret(block / kBlocksPerSecret);
    total_.format.unpack(total_.block(block), rows_);
    parameters_.digits().to_residues(rows_);
    const auto polynomial = key_.polynomial(block % kBlocksPerSecret);
    for (std::size_t p = 0; p < parameters_.ntts().size(); ++p) {
      const ring::Ntt& ntt = parameters_.ntts()[p];
      const std::uint64_t q = ntt.modulus().value;
      std::uint64_t* row = rows_.data() + p * degree;
      ntt.multiply(polynomial.subspan(p * degree, degree), negated_secret_[p], product_);
      ntt.inverse(product_);
      kernels_.add_row(product_.data(), degree, q, row);
      kernels_.add_row(corrections_.data() + p * degree, degree, q, row);
    }
    return packing_.read_sums(rows_, total_.head.participants.size(), sums);
  }

 private:
  void use_secret(std::size_t v) {
    if (v == secret_number_) return;
    const auto coefficients =
        sum_key_.coefficients().subspan(v * total_.head.facts.degree, total_.head.facts.degree);
    SecretVector<std::int32_t> negated(coefficients.size());
    for (std::size_t i = 0; i < negated.size(); ++i) negated[i] = -coefficients[i];
    negated_secret_ = prepare_secret(parameters_, negated);
    secret_number_ = v;
  }

  const PublicKey& key_;
  const Parameters& parameters_;
  const CiphertextView& total_;
  const SumKey& sum_key_;
  const ring::RowKernels& kernels_;
  rlwe::FieldPacking packing_;
  std::size_t secret_number_ = ~std::size_t{0};
  std::vector<ring::PreparedRow> negated_secret_;
  std::vector<std::uint64_t> corrections_;
  SecretVector<std::uint64_t> rows_;
  SecretVector<std::uint64_t> product_;
};

}  // namespace

OpenedSums open(const PublicKey& key, const CiphertextView& total, const Digest& total_digest,
                const SumKey& sum_key, std::size_t threads) {
  check(key, total, total_digest, sum_key);
  const ParameterFacts& facts = total.head.facts;
  const std::uint64_t count = total.head.layout.field_count();
  std::vector<double> values;
  values.reserve(count);
  prefer_huge_pages(values.data(), count * sizeof(double));
  values.resize(count);
  std::atomic<bool> valid = true;
  const std::size_t blocks = block_count(facts, total.head.layout);
  parallel_for(blocks, threads_for(threads, blocks, rlwe::kBlocksWorthEncrypting), 1,
               [&](std::size_t begin, std::size_t end) {
                 BlockOpening opening(key, total, sum_key);
                 for (std::size_t block = begin; block < end; ++block) {
                   const std::uint64_t first = block * facts.values_per_block();
                   const auto out = std::span(values).subspan(
                       first, std::min<std::uint64_t>(facts.values_per_block(), count - first));
                   const bool in_range = opening.open(block, out);
                   // Whoever opens is told: by the sums, or by the error.
                   declassify(&in_range, sizeof in_range);
                   if (!in_range) valid = false;
                 }
               });
  if (!valid) {
    secure_wipe(values.data(), values.size() * sizeof values[0]);
    throw Error(ErrorCode::kWireFormat,
                "the total does not open to sums of values in range: its list of clients is not that of the "
                "ciphertexts in it, or one of them was altered");
  }
  OpenedSums opened{std::move(values), std::nullopt};
  if (total.head.layout.weighted) {
    opened.weight_sum = facts.fixed_point().weight_from_value(opened.values.back());
    opened.values.pop_back();
  }
  return opened;
}

}  // namespace shieldfl::kahe
