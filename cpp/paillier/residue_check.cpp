// check_residues of ciphertext.h.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "common/error.h"
#include "paillier/big_endian.h"
#include "paillier/big_integer.h"
#include "paillier/ciphertext.h"
#include "parallel/parallel_for.h"

namespace shieldfl::paillier {
namespace {

// So many products grow side by side, in the engine's lanes.
constexpr std::size_t kLanes = 16;
// A product takes some 2 us, and each thread takes a greatest common divisor.
constexpr std::size_t kResiduesWorthChecking = 128;

// Some residues of one frame. A greatest common divisor takes as long as dozens of products, so the product
// of all is tested, and that of either half only if it fails.
class ResidueCheck {
 public:
  ResidueCheck(const CiphertextView& view, const PublicKey& key)
      : view_(view),
        key_(key),
        words_(key.parameters().ciphertext_words()),
        modulus_(BigInteger::from_words(key.modulus())),
        modulus_square_(key.parameters().ciphertext_bytes()),
        residues_(kLanes * words_),
        products_(kLanes * words_) {
    to_big_endian(key.modulus_square(), modulus_square_);
  }

  // The place of a residue that is none, or `end`.
  std::size_t find_wrong(std::size_t begin, std::size_t end) {
    const std::size_t used = std::min(kLanes, end - begin);
    if (used == 0) return end;
    const auto residues = std::span(residues_);
    const auto products = std::span(products_);
    for (std::size_t first = begin; first < end; first += kLanes) {
      const std::size_t count = std::min(kLanes, end - first);
      for (std::size_t i = first; i < first + count; ++i) {
        if (!in_range(i)) return i;
      }
      read_residues(view_, first, count, residues);
      if (first == begin) {
        key_.engine().to_pairs(residues.first(count * words_), products.first(count * words_));
      } else {
        key_.engine().multiply_residues(residues.first(count * words_), products.first(count * words_));
      }
    }
    if (is_unit(product_of(products.first(used * words_)))) return end;
    return end - begin == 1 ? begin : find_wrong_half(begin, end);
  }

 private:
  std::size_t find_wrong_half(std::size_t begin, std::size_t end) {
    const std::size_t middle = begin + (end - begin) / 2;
    const std::size_t found = find_wrong(begin, middle);
    return found != middle ? found : find_wrong(middle, end);
  }

  // The lower half of the product of these pairs, which are overwritten.
  [[nodiscard]] std::span<const std::uint64_t> product_of(std::span<std::uint64_t> pairs) const {
    for (std::size_t left = pairs.size() / words_; left > 1;) {
      const std::size_t half = left / 2;
      const auto factors = pairs.first(half * words_);
      key_.engine().multiply(factors, pairs.subspan((left - half) * words_, half * words_), factors);
      left -= half;
    }
    return pairs.first(words_ / 2);
  }

  [[nodiscard]] bool in_range(std::size_t place) const {
    const std::size_t bytes = modulus_square_.size();
    return std::memcmp(view_.payload.data() + place * bytes, modulus_square_.data(), bytes) < 0;
  }

  // Whether a number has no factor in common with n.
  [[nodiscard]] bool is_unit(std::span<const std::uint64_t> number) const {
    return greatest_common_divisor(BigInteger::from_words(number), modulus_) == BigInteger(1);
  }

  const CiphertextView& view_;
  const PublicKey& key_;
  std::size_t words_;
  BigInteger modulus_;
  std::vector<std::uint8_t> modulus_square_;  // big-endian, as residues travel
  std::vector<std::uint64_t> residues_;
  std::vector<std::uint64_t> products_;  // pairs, of which the lower half is the product modulo n
};

}  // namespace

void check_residues(const CiphertextView& view, const PublicKey& key, std::size_t threads) {
  // Not the id that the layout states: the lengths of residues are those of the parameters themselves.
  if (view.parameters != key.parameters()) {
    throw Error(ErrorCode::kParameter, "the ciphertexts were made with other parameters than this key's");
  }
  if (view.layout.key_id != key.id()) {
    throw Error(ErrorCode::kKeyMismatch, "the ciphertexts were encrypted under another key");
  }
  constexpr std::size_t kNone = ~std::size_t{0};
  std::atomic<std::size_t> wrong = kNone;
  const std::size_t residues = view.present_count();
  parallel_for(residues, threads_for(threads, residues, kResiduesWorthChecking), kLanes,
               [&](std::size_t begin, std::size_t end) {
                 const std::size_t found = ResidueCheck(view, key).find_wrong(begin, end);
                 if (found != end) wrong = found;
               });
  if (wrong != kNone) {
    throw Error(ErrorCode::kWireFormat,
                "ciphertext " + std::to_string(wrong) + (view.present ? " of those that the frame has" : "") +
                    " is no residue that has an inverse modulo n^2: the frame was altered");
  }
}

}  // namespace shieldfl::paillier
