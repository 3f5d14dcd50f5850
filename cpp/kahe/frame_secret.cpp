#include "kahe/frame_secret.h"

#include "common/verify.h"
#include "ring/modulus.h"
#include "ring/sampler.h"

namespace shieldfl::kahe {

static_assert(kMaxSample == kBinomials * ring::kErrorCoins && kMaxSample <= 127);

void sample_small(RandomStream& stream, std::span<std::int8_t> out, std::span<std::int8_t> scratch) {
  VERIFY(out.size() == scratch.size());
  ring::sample_error(stream, out);
  for (int more = 1; more < kBinomials; ++more) {
    ring::sample_error(stream, scratch);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int8_t>(out[i] + scratch[i]);
  }
}

void sample_secret(const Seed& frame_seed, std::size_t v, std::span<std::int8_t> out,
                   std::span<std::int8_t> scratch) {
  RandomStream stream(frame_seed, v);
  sample_small(stream, out, scratch);
}

std::vector<ring::PreparedRow> prepare_secret(const Parameters& parameters,
                                              std::span<const std::int32_t> coefficients) {
  std::vector<ring::PreparedRow> rows;
  SecretVector<std::uint64_t> row(coefficients.size());
  for (const ring::Ntt& ntt : parameters.ntts()) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = ring::residue(coefficients[i], ntt.modulus().value);
    }
    ntt.forward(row);
    rows.push_back(ntt.prepare(row));
  }
  return rows;
}

}  // namespace shieldfl::kahe
