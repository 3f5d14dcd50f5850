// 64-bit arithmetic; prepared factors are the factor and floor(factor * 2^64 / q), after Shoup.
#include "common/verify.h"
#include "ring/modulus.h"
#include "ring/ntt_kernels.h"

namespace shieldfl::ring {
namespace {

// The quotients by multiplication, since factors may be a secret key and a division takes a time of its own.
void prepare(const std::uint64_t* factors, std::size_t count, std::uint64_t q, std::uint64_t* first,
             std::uint64_t* second) {
  const UInt128 reciprocal = ~UInt128{0} / q;
  const auto high = static_cast<std::uint64_t>(reciprocal >> 64);
  const auto low = static_cast<std::uint64_t>(reciprocal);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t factor = factors[i];
    VERIFY(factor < q);
    // floor(factor * reciprocal / 2^64): at most one too small, as factor < 2^61 and the reciprocal is less
    // than one too small. So the remainder of factor * 2^64 is below 2 q, and its low word is all of it.
    const std::uint64_t estimate =
        factor * high + static_cast<std::uint64_t>((static_cast<UInt128>(factor) * low) >> 64);
    const std::uint64_t remainder = 0 - estimate * q;
    first[i] = factor;
    second[i] = estimate + 1 - ((remainder - q) >> 63);
  }
}

void forward(std::uint64_t* values, const NttTable& table) {
  const std::uint64_t q = table.q;
  const std::uint64_t two_q = 2 * q;
  // Cooley-Tukey; values stay in [0, 4q) until the end, after Harvey.
  for (std::size_t groups = 1, half = table.degree / 2; half >= 1; groups *= 2, half /= 2) {
    for (std::size_t group = 0; group < groups; ++group) {
      const Factor w{table.forward_first[groups + group], table.forward_second[groups + group]};
      std::uint64_t* low = values + 2 * group * half;
      std::uint64_t* high = low + half;
      for (std::size_t i = 0; i < half; ++i) {
        VERIFY(low[i] < 4 * q && high[i] < 4 * q);
        const std::uint64_t a = subtract_if_above(low[i], two_q);
        const std::uint64_t b = multiply_lazy(high[i], w, q);
        low[i] = a + b;
        high[i] = a + two_q - b;
      }
    }
  }
  for (std::size_t i = 0; i < table.degree; ++i) {
    values[i] = subtract_if_above(subtract_if_above(values[i], two_q), q);
  }
}

void inverse(std::uint64_t* values, const NttTable& table) {
  const std::uint64_t q = table.q;
  const std::uint64_t two_q = 2 * q;
  // Gentleman-Sande; values stay in [0, 2q) until the end.
  for (std::size_t groups = table.degree / 2, half = 1; groups >= 1; groups /= 2, half *= 2) {
    for (std::size_t group = 0; group < groups; ++group) {
      const Factor w{table.inverse_first[groups + group], table.inverse_second[groups + group]};
      std::uint64_t* low = values + 2 * group * half;
      std::uint64_t* high = low + half;
      for (std::size_t i = 0; i < half; ++i) {
        const std::uint64_t a = low[i];
        const std::uint64_t b = high[i];
        VERIFY(a < two_q && b < two_q);
        low[i] = subtract_if_above(a + b, two_q);
        high[i] = multiply_lazy(a + two_q - b, w, q);
      }
    }
  }
  const Factor scale{table.degree_inverse_first, table.degree_inverse_second};
  for (std::size_t i = 0; i < table.degree; ++i) values[i] = multiply(values[i], scale, q);
}

void multiply_row(const std::uint64_t* in, const std::uint64_t* first, const std::uint64_t* second,
                  std::size_t count, std::uint64_t q, std::uint64_t* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = multiply(in[i], Factor{first[i], second[i]}, q);
}

}  // namespace

const NttKernels kNttKernelsScalar = {prepare, forward, inverse, multiply_row};

}  // namespace shieldfl::ring
