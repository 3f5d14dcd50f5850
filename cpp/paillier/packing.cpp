#include "paillier/packing.h"

#include <gmp.h>

#include <algorithm>
#include <cstddef>

#include "common/secure_memory.h"
#include "common/verify.h"

namespace shieldfl::paillier {
namespace {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

// The integer sum of values[j] * 2^(j * field_bits), in two's complement over all of `out`.
void write_fields(std::span<const std::int64_t> values, unsigned field_bits, std::span<std::uint64_t> out) {
  Int128 pending = 0;   // what the words so far do not hold, in units of the next word
  unsigned filled = 0;  // the bit of `pending` at which the next field begins
  std::size_t word = 0;
  for (const std::int64_t value : values) {
    pending += static_cast<Int128>(value) * (Int128{1} << filled);
    filled += field_bits;
    if (filled >= 64) {
      out[word++] = static_cast<std::uint64_t>(pending);
      pending >>= 64;
      filled -= 64;
    }
  }
  for (; word < out.size(); ++word) {
    out[word] = static_cast<std::uint64_t>(pending);
    pending >>= 64;
  }
}

}  // namespace

void pack_values(const Parameters& parameters, std::span<const std::int64_t> values,
                 std::span<const std::uint64_t> modulus, std::span<std::uint64_t> plaintext) {
  VERIFY(values.size() <= parameters.values_per_ciphertext());
  VERIFY(all_within(values.data(), values.size(), (std::int64_t{1} << (parameters.field_bits() - 1)) - 1));
  VERIFY(plaintext.size() == parameters.modulus_words() && modulus.size() == plaintext.size());
  write_fields(values, parameters.field_bits(), plaintext);
  // The sum is far below 2^(key_bits - 1) in magnitude, so that the top bit is its sign.
  (void)mpn_cnd_add_n(plaintext.back() >> 63, plaintext.data(), plaintext.data(), modulus.data(),
                      static_cast<mp_size_t>(plaintext.size()));
  VERIFY(is_below(plaintext.data(), modulus.data(), plaintext.size()));
}

// 2^(field_bits - 1) more in each field makes all of them positive, so that none borrows from the next: what
// was an integer of either sign is then one in [0, 2^(count * field_bits)), whose fields are simply its bits.
bool unpack_sums(const Parameters& parameters, std::span<const std::uint64_t> plaintext,
                 std::span<const std::uint64_t> modulus, std::uint64_t total_weight,
                 std::span<std::int64_t> sums) {
  VERIFY(plaintext.size() == modulus.size() && is_below(plaintext.data(), modulus.data(), plaintext.size()));
  VERIFY(sums.size() <= parameters.values_per_ciphertext() && total_weight <= parameters.max_total_weight());
  const unsigned field_bits = parameters.field_bits();
  const std::int64_t offset = std::int64_t{1} << (field_bits - 1);
  const auto max_sum = static_cast<std::int64_t>(total_weight) * parameters.max_magnitude();
  const auto limbs = static_cast<mp_size_t>(plaintext.size());
  SecretVector<std::uint64_t> fields(plaintext.size());
  std::ranges::fill(sums, offset);
  write_fields(sums, field_bits, fields);
  const mp_limb_t carry = mpn_add_n(fields.data(), fields.data(), plaintext.data(), limbs);
  const mp_limb_t borrow = mpn_sub_n(fields.data(), fields.data(), modulus.data(), limbs);
  (void)mpn_cnd_add_n(borrow - carry, fields.data(), fields.data(), modulus.data(), limbs);

  const std::uint64_t field_mask = (std::uint64_t{1} << field_bits) - 1;
  std::uint64_t wrong = 0;  // not zero once anything is not what it has to be
  std::size_t bit = 0;
  for (std::int64_t& sum : sums) {
    const std::size_t word = bit / 64;
    const UInt128 low = fields[word];
    const UInt128 high = word + 1 < fields.size() ? fields[word + 1] : 0;
    const auto field = static_cast<std::uint64_t>((low | (high << 64)) >> (bit % 64)) & field_mask;
    sum = static_cast<std::int64_t>(field) - offset;
    wrong |= static_cast<std::uint64_t>((max_sum - sum) | (max_sum + sum)) >> 63;
    bit += field_bits;
  }
  wrong |= fields[bit / 64] >> (bit % 64);
  for (std::size_t word = bit / 64 + 1; word < fields.size(); ++word) wrong |= fields[word];
  return wrong == 0;
}

}  // namespace shieldfl::paillier
