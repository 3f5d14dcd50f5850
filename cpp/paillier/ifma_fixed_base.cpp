#include "paillier/ifma_fixed_base.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/error.h"
#include "common/huge_pages.h"
#include "paillier/exponent_digits.h"

namespace shieldfl::paillier {
namespace {

constexpr std::size_t kMinWindowBits = 6;  // one slice
constexpr std::size_t kMaxWindowBits = 8;  // kMaxSlices
constexpr std::size_t kMaxTableBytes = 80'000'000;

static_assert(std::size_t{1} << kMaxWindowBits == kSliceEntries * kMaxSlices);

std::size_t rows_for(std::size_t exponent_bits, std::size_t window_bits) {
  return (exponent_bits + window_bits - 1) / window_bits;
}

std::size_t slices_for(std::size_t window_bits) {
  return (std::size_t{1} << window_bits) / kSliceEntries;
}

// Bytes of one row of a table.
std::size_t row_bytes(std::size_t limbs, std::size_t slices) {
  return 2 * limbs * kLimbBytes * kSliceEntries * slices;
}

// Where look_up wants the digit of a number of a block.
std::size_t table_position(std::size_t number) {
  return 16 * (number % kGroup / 2) + 2 * (number / kGroup) + number % 2;
}

// Wider windows are fewer products. Nine bits would save an eighth of them and need twice the table, which
// takes that back as it is read through the caches.
std::size_t choose_window_bits(std::size_t exponent_bits, std::size_t limbs) {
  std::size_t window_bits = kMaxWindowBits;
  while (window_bits > kMinWindowBits &&
         (rows_for(exponent_bits, window_bits) * row_bytes(limbs, slices_for(window_bits)) > kMaxTableBytes ||
          rows_for(exponent_bits, window_bits) == rows_for(exponent_bits, window_bits - 1))) {
    --window_bits;
  }
  return window_bits;
}

// Digits of 64 numbers, as look_up takes them.
struct BlockDigits {
  std::array<std::uint8_t, kTableBlockNumbers> low;
  std::array<std::uint8_t, kTableBlockNumbers> high;
};

class IfmaFixedBase final : public FixedBase {
 public:
  IfmaFixedBase(std::shared_ptr<const IfmaMontgomery> montgomery, std::span<const std::uint64_t> base,
                std::size_t exponent_bits)
      : FixedBase(exponent_bits),
        montgomery_(std::move(montgomery)),
        window_bits_(choose_window_bits(exponent_bits, montgomery_->limbs())),
        rows_(rows_for(exponent_bits, window_bits_)),
        row_bytes_(row_bytes(montgomery_->limbs(), slices_for(window_bits_))) {
    if (exponent_bits == 0) {
      throw Error(ErrorCode::kParameter, "a fixed base needs exponents of one bit or more");
    }
    table_.reserve(rows_ * row_bytes_);
    prefer_huge_pages(table_.data(), rows_ * row_bytes_);
    table_.resize(rows_ * row_bytes_);
    fill(base);
  }

  [[nodiscard]] std::size_t table_bytes() const override { return table_.size(); }

  void power(std::span<const std::uint64_t> exponents, std::span<std::uint64_t> pairs) const override {
    const std::size_t pair_words = 2 * montgomery_->words();
    const std::size_t numbers = pairs.size() / pair_words;
    const std::size_t batch_groups = (std::min(numbers, kFixedBaseBatch) + kGroup - 1) / kGroup;
    LaneVector products(batch_groups * montgomery_->pair_lanes());
    LaneVector factors(kTableBlock * montgomery_->pair_lanes());
    LaneVector scratch(montgomery_->scratch_lanes());
    SecretVector<BlockDigits> digits(1);
    for (std::size_t first = 0; first < numbers; first += kFixedBaseBatch) {
      const std::size_t count = std::min(kFixedBaseBatch, numbers - first);
      for (std::size_t row = 0; row < rows_; ++row) {
        multiply_row(exponents.subspan(first * exponent_words(), count * exponent_words()), row, digits[0],
                     factors, scratch, products);
      }
      for (std::size_t i = 0; i < count; i += kGroup) {
        montgomery_->store(products.data() + i / kGroup * montgomery_->pair_lanes(),
                           std::min(kGroup, count - i), pairs.data() + (first + i) * pair_words);
      }
    }
  }

  // Addresses that depend on digits would not make it faster: a look-up costs a tenth of the product that
  // follows.
  void power_vartime(std::span<const std::uint64_t> exponents,
                     std::span<std::uint64_t> pairs) const override {
    power(exponents, pairs);
  }

 private:
  // products *= row^digit for up to kFixedBaseBatch numbers, or products = row^digit for row 0.
  void multiply_row(std::span<const std::uint64_t> exponents, std::size_t row, BlockDigits& digits,
                    LaneVector& factors, LaneVector& scratch, LaneVector& products) const {
    const std::size_t pair = montgomery_->pair_lanes();
    const std::size_t numbers = exponents.size() / exponent_words();
    for (std::size_t block = 0; block < numbers; block += kTableBlockNumbers) {
      const std::size_t count = std::min(kTableBlockNumbers, numbers - block);
      read_digits(exponents.subspan(block * exponent_words(), count * exponent_words()), row, digits);
      montgomery_->kernels().look_up(table_.data() + row * row_bytes_, montgomery_->limbs(),
                                     slices_for(window_bits_), digits.low.data(), digits.high.data(),
                                     factors.data());
      std::uint64_t* const block_products = products.data() + block / kGroup * pair;
      const std::size_t groups = (count + kGroup - 1) / kGroup;
      if (row == 0) {
        std::copy_n(factors.data(), groups * pair, block_products);
        continue;
      }
      for (std::size_t g = 0; g < groups; ++g) {
        montgomery_->kernels().multiply(montgomery_->modulus(), block_products + g * pair,
                                        factors.data() + g * pair, block_products + g * pair, scratch.data());
      }
    }
  }

  void read_digits(std::span<const std::uint64_t> exponents, std::size_t row, BlockDigits& digits) const {
    digits = {};
    const std::size_t first_bit = row * window_bits_;
    const std::size_t bits = std::min(window_bits_, exponent_bits() - first_bit);
    for (std::size_t i = 0; i < exponents.size() / exponent_words(); ++i) {
      const std::uint64_t digit =
          exponent_digit(exponents.subspan(i * exponent_words(), exponent_words()), first_bit, bits);
      const std::size_t position = table_position(i);
      digits.low[position] = static_cast<std::uint8_t>(digit % kSliceEntries);
      digits.high[position] = static_cast<std::uint8_t>(digit / kSliceEntries);
    }
  }

  // Row i holds the powers of base^(2^(i * window)), eight rows at once. All are in Montgomery form but row
  // 0, so that the product of one entry of each is not.
  void fill(std::span<const std::uint64_t> base) {
    const IfmaKernels& kernels = montgomery_->kernels();
    const IfmaModulus& modulus = montgomery_->modulus();
    const std::size_t pair = montgomery_->pair_lanes();
    LaneVector scratch(montgomery_->scratch_lanes());
    LaneVector power(pair);
    LaneVector row_bases(pair);
    LaneVector entries(kSliceEntries * pair);
    montgomery_->load(base.data(), 1, power.data(), scratch.data());
    kernels.multiply(modulus, power.data(), montgomery_->power_of_r(2), power.data(), scratch.data());
    for (std::size_t first = 0; first < rows_; first += kGroup) {
      const std::size_t count = std::min(kGroup, rows_ - first);
      for (std::size_t k = 0; k < count; ++k) {
        for (std::size_t i = 0; i < 2 * modulus.limbs; ++i) row_bases[i * kGroup + k] = power[i * kGroup];
        for (std::size_t i = 0; i < window_bits_; ++i) {
          kernels.square(modulus, power.data(), power.data(), scratch.data());
        }
      }
      fill_rows(first, count, row_bases, entries, scratch);
    }
  }

  void fill_rows(std::size_t first, std::size_t count, const LaneVector& row_bases, LaneVector& entries,
                 LaneVector& scratch) {
    const IfmaKernels& kernels = montgomery_->kernels();
    const std::size_t pair = montgomery_->pair_lanes();
    const std::size_t slices = slices_for(window_bits_);
    std::uint64_t* const last = entries.data() + (kSliceEntries - 1) * pair;
    for (std::size_t slice = 0; slice < slices; ++slice) {
      for (std::size_t e = 0; e < kSliceEntries; ++e) {
        std::uint64_t* const entry = entries.data() + e * pair;
        if (e == 0 && slice == 0) {
          std::copy_n(montgomery_->power_of_r(1), pair, entry);
          if (first == 0) {
            for (std::size_t i = 0; i < pair; i += kGroup) entry[i] = montgomery_->power_of_r(0)[i];
          }
          continue;
        }
        kernels.multiply(montgomery_->modulus(), e == 0 ? last : entry - pair, row_bases.data(), entry,
                         scratch.data());
      }
      for (std::size_t k = 0; k < count; ++k) {
        kernels.pack(entries.data(), montgomery_->limbs(), k, slice, slices,
                     table_.data() + (first + k) * row_bytes_);
      }
    }
  }

  std::shared_ptr<const IfmaMontgomery> montgomery_;
  std::size_t window_bits_;
  std::size_t rows_;
  std::size_t row_bytes_;
  SecretVector<std::uint8_t> table_;
};

}  // namespace

std::unique_ptr<const FixedBase> make_ifma_fixed_base(std::shared_ptr<const IfmaMontgomery> montgomery,
                                                      std::span<const std::uint64_t> base,
                                                      std::size_t exponent_bits) {
  return std::make_unique<const IfmaFixedBase>(std::move(montgomery), base, exponent_bits);
}

}  // namespace shieldfl::paillier
