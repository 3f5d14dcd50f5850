#include "kahe/block_encryption.h"

#include <utility>

#include "common/taint.h"
#include "common/verify.h"
#include "kahe/frame_secret.h"

namespace shieldfl::kahe {
namespace {

constexpr std::size_t kNoSecret = ~std::size_t{0};

}  // namespace

BlockEncryption::BlockEncryption(const PublicKey& key, std::vector<Seed> frame_seeds, SeedSource& seeds)
    : key_(key), frame_seeds_(std::move(frame_seeds)), error_seed_(seeds.next()) {}

BlockEncryption::Thread::Thread(const BlockEncryption& frame)
    : frame_(frame),
      parameters_(*frame.key_.parameters()),
      kernels_(ring::row_kernels(instruction_set())),
      packing_(parameters_.digits(), parameters_.facts().field_shape()),
      format_(parameters_.facts().format(FrameKind::kKaheBatch)),
      secret_number_(kNoSecret),
      samples_(parameters_.facts().degree),
      scratch_(samples_.size()),
      rows_(parameters_.digits().words()) {}

void BlockEncryption::Thread::use_secret(std::size_t v) {
  if (v == secret_number_) return;
  SecretVector<std::int32_t> coefficients(samples_.size());
  for (const Seed& seed : frame_.frame_seeds_) {
    sample_secret(seed, v, samples_, scratch_);
    for (std::size_t i = 0; i < samples_.size(); ++i) coefficients[i] += samples_[i];
  }
  secret_ = prepare_secret(parameters_, coefficients);
  secret_number_ = v;
}

void BlockEncryption::Thread::operator()(std::size_t block, std::span<const std::int64_t> values,
                                         std::size_t count, std::span<std::uint8_t> out) {
  const std::size_t degree = samples_.size();
  VERIFY(out.size() == format_.bytes());
  use_secret(block / kBlocksPerSecret);
  RandomStream stream(frame_.error_seed_, block);
  sample_small(stream, samples_, scratch_);
  const auto polynomial = frame_.key_.polynomial(block % kBlocksPerSecret);
  for (std::size_t p = 0; p < parameters_.ntts().size(); ++p) {
    const ring::Ntt& ntt = parameters_.ntts()[p];
    const auto row = std::span(rows_).subspan(p * degree, degree);
    ntt.multiply(polynomial.subspan(p * degree, degree), secret_[p], row);
    ntt.inverse(row);
    kernels_.add_samples(samples_.data(), degree, ntt.modulus().value, row.data());
    packing_.add_message(values, count, p, row);
  }
  rlwe::pack_residues(parameters_.digits(), format_, rows_, out);
  // A ciphertext goes to the aggregator; before that, its checksum is taken by table look-ups.
  declassify(out.data(), out.size());
}

}  // namespace shieldfl::kahe
