#include "enrolled/opening.h"

#include "common/error.h"
#include "common/secure_memory.h"
#include "kahe/frame_secret.h"
#include "kahe/sum_key.h"
#include "ring/row_kernels.h"
#include "rlwe/field_packing.h"
#include "rlwe/packed_digits.h"

namespace shieldfl::kahe {
namespace {

// Opens the ciphertexts of a total. A thread's scratch space, wiped in the end. Refers to what it is given.
class BlockOpening {
 public:
  BlockOpening(const PublicKey& key, const CiphertextView& total, std::span<const SumKey> sum_keys)
      : key_(key),
        parameters_(*key.parameters()),
        total_(total),
        sum_keys_(sum_keys),
        kernels_(ring::row_kernels(instruction_set())),
        packing_(parameters_.digits(), total.head.facts.field_shape()),
        rows_(parameters_.digits().words()),
        product_(total.head.facts.degree) {}

  ~BlockOpening() { secure_wipe_stack(); }
  BlockOpening(const BlockOpening&) = delete;
  BlockOpening& operator=(const BlockOpening&) = delete;

  // Whether these can be sums.
  bool open(std::size_t block, std::span<double> sums) {
    const std::size_t degree = total_.head.facts.degree;
    use_secret(block / kBlocksPerSecret);
    total_.format.unpack(total_.block(block), rows_);
    parameters_.digits().to_residues(rows_);
    const auto polynomial = key_.polynomial(block % kBlocksPerSecret);
    for (std::size_t p = 0; p < parameters_.ntts().size(); ++p) {
      const ring::Ntt& ntt = parameters_.ntts()[p];
      ntt.multiply(polynomial.subspan(p * degree, degree), negated_secret_[p], product_);
      ntt.inverse(product_);
      kernels_.add_row(product_.data(), degree, ntt.modulus().value, rows_.data() + p * degree);
    }
    // Unpacking takes the middle of what batches left out, which is 1/2 too much for each on average.
    const std::size_t clients = total_.head.participants.size();
    return packing_.read_sums(rows_, clients, total_.head.facts.dropped_bits == 0 ? 0 : clients / 2, sums);
  }

 private:
  void use_secret(std::size_t v) {
    if (v == secret_number_) return;
    SecretVector<std::int32_t> negated(total_.head.facts.degree);
    for (const SumKey& sum_key : sum_keys_) {
      const auto coefficients = sum_key.coefficients().subspan(v * negated.size(), negated.size());
      for (std::size_t i = 0; i < negated.size(); ++i) negated[i] -= coefficients[i];
    }
    negated_secret_ = prepare_secret(parameters_, negated);
    secret_number_ = v;
  }

  const PublicKey& key_;
  const Parameters& parameters_;
  const CiphertextView& total_;
  std::span<const SumKey> sum_keys_;
  const ring::RowKernels& kernels_;
  rlwe::FieldPacking packing_;
  std::size_t secret_number_ = ~std::size_t{0};
  std::vector<ring::PreparedRow> negated_secret_;
  SecretVector<std::uint64_t> rows_;
  SecretVector<std::uint64_t> product_;
};

}  // namespace

std::optional<double> open_into(std::span<double> fields, const PublicKey& key, const CiphertextView& total,
                                const Digest& total_digest, std::span<const SumKey> sum_keys,
                                std::size_t threads) {
  enrolled::check_is_total(total);
  const SumContext context = key.context_of(total.head);
  const std::uint32_t degree = total.head.facts.degree;
  // Stated clients bound the coefficients, which have to be below every prime.
  enrolled::check_sum_keys(sum_keys, context, total, total_digest, degree,
                           secret_count(total.head.block_count()) * degree);
  return enrolled::open_blocks(total, fields, threads, rlwe::kBlocksWorthEncrypting,
                               [&] { return BlockOpening(key, total, sum_keys); });
}

OpenedSums open(const PublicKey& key, const CiphertextView& total, const Digest& total_digest,
                std::span<const SumKey> sum_keys, std::size_t threads) {
  return enrolled::in_new_memory(total.head.layout, [&](std::span<double> fields) {
    return open_into(fields, key, total, total_digest, sum_keys, threads);
  });
}

}  // namespace shieldfl::kahe
