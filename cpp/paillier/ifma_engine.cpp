#include "paillier/ifma_engine.h"

#include <algorithm>

#include "paillier/ifma_fixed_base.h"
#include "paillier/ifma_montgomery.h"
#include "paillier/ifma_power.h"

namespace shieldfl::paillier {
namespace {

class IfmaEngine final : public Engine {
 public:
  IfmaEngine(const IfmaKernels& kernels, std::span<const std::uint64_t> modulus)
      : Engine(modulus.size()),
        montgomery_(std::make_shared<const IfmaMontgomery>(kernels, modulus)),
        kernels_(kernels),
        modulus_(montgomery_->modulus()) {}

  [[nodiscard]] EngineKind kind() const override { return EngineKind::kIfma; }
  [[nodiscard]] std::size_t batch_size() const override { return kFixedBaseBatch; }

  void to_pairs(std::span<const std::uint64_t> residues, std::span<std::uint64_t> pairs) const override {
    LaneVector residue(montgomery_->pair_lanes());
    LaneVector scratch(montgomery_->scratch_lanes());
    for_each_group(pairs.size() / pair_words(), [&](std::size_t first, std::size_t count) {
      load_residues(residues.data() + first * pair_words(), count, residue, scratch);
      kernels_.fold(modulus_, residue.data(), montgomery_->power_of_r(1), montgomery_->power_of_r(2),
                    residue.data(), scratch.data());
      montgomery_->store(residue.data(), count, pairs.data() + first * pair_words(), 2);
    });
  }

  void to_residues(std::span<const std::uint64_t> pairs, std::span<std::uint64_t> residues) const override {
    LaneVector lanes(montgomery_->pair_lanes());
    LaneVector scratch(montgomery_->scratch_lanes());
    for_each_group(pairs.size() / pair_words(), [&](std::size_t first, std::size_t count) {
      montgomery_->load(pairs.data() + first * pair_words(), count, lanes.data(), scratch.data());
      kernels_.expand(modulus_, lanes.data(), lanes.data(), scratch.data());
      kernels_.store(lanes.data(), 2 * modulus_.limbs, count, pair_words(), pair_words(),
                     residues.data() + first * pair_words());
    });
  }

  void multiply(std::span<const std::uint64_t> left, std::span<const std::uint64_t> right,
                std::span<std::uint64_t> out) const override {
    LaneVector x(montgomery_->pair_lanes());
    LaneVector y(montgomery_->pair_lanes());
    LaneVector scratch(montgomery_->scratch_lanes());
    for_each_group(out.size() / pair_words(), [&](std::size_t first, std::size_t count) {
      montgomery_->load(left.data() + first * pair_words(), count, x.data(), scratch.data());
      montgomery_->load(right.data() + first * pair_words(), count, y.data(), scratch.data());
      kernels_.multiply(modulus_, x.data(), montgomery_->power_of_r(2), x.data(), scratch.data());
      kernels_.multiply(modulus_, x.data(), y.data(), x.data(), scratch.data());
      montgomery_->store(x.data(), count, out.data() + first * pair_words());
    });
  }

  void multiply_residues(std::span<const std::uint64_t> residues,
                         std::span<std::uint64_t> pairs) const override {
    LaneVector x(montgomery_->pair_lanes());
    LaneVector y(montgomery_->pair_lanes());
    LaneVector scratch(montgomery_->scratch_lanes());
    for_each_group(pairs.size() / pair_words(), [&](std::size_t first, std::size_t count) {
      load_residues(residues.data() + first * pair_words(), count, x, scratch);
      montgomery_->load(pairs.data() + first * pair_words(), count, y.data(), scratch.data());
      // In Montgomery form, which the product takes away again.
      kernels_.fold(modulus_, x.data(), montgomery_->power_of_r(2), montgomery_->power_of_r(3), x.data(),
                    scratch.data());
      kernels_.multiply(modulus_, x.data(), y.data(), x.data(), scratch.data());
      montgomery_->store(x.data(), count, pairs.data() + first * pair_words());
    });
  }

  void add_plaintexts(std::span<const std::uint64_t> plaintexts,
                      std::span<std::uint64_t> pairs) const override {
    LaneVector pair(montgomery_->pair_lanes());
    LaneVector plaintext(montgomery_->half_lanes());
    LaneVector scratch(montgomery_->scratch_lanes());
    for_each_group(pairs.size() / pair_words(), [&](std::size_t first, std::size_t count) {
      montgomery_->load(pairs.data() + first * pair_words(), count, pair.data(), scratch.data());
      kernels_.load(plaintexts.data() + first * words(), count, words(), words(), modulus_.limbs,
                    plaintext.data(), scratch.data());
      // (low + high * n) * (1 + m * n) = low + (high + m * low) * n.
      kernels_.multiply_half(modulus_, plaintext.data(), montgomery_->power_of_r(2), plaintext.data(),
                             scratch.data());
      kernels_.multiply_half(modulus_, plaintext.data(), pair.data(), plaintext.data(), scratch.data());
      std::uint64_t* const high = pair.data() + montgomery_->half_lanes();
      for (std::size_t i = 0; i < plaintext.size(); ++i) high[i] += plaintext[i];
      montgomery_->store(pair.data(), count, pairs.data() + first * pair_words(), 2);
    });
  }

  void power_public(std::span<const std::uint64_t> bases, std::span<const std::uint64_t> exponent,
                    std::span<std::uint64_t> out) const override {
    const SlidingPower power(*montgomery_, exponent);
    raise(bases, power, out);
  }

  void power_secret(std::span<const std::uint64_t> bases, std::span<const std::uint64_t> exponent,
                    std::span<std::uint64_t> out) const override {
    const SecretPower power(*montgomery_, exponent);
    raise(bases, power, out);
  }

  [[nodiscard]] std::unique_ptr<const FixedBase> fixed_base(std::span<const std::uint64_t> base,
                                                            std::size_t exponent_bits) const override {
    return make_ifma_fixed_base(montgomery_, base, exponent_bits);
  }

 private:
  template <typename Body>
  static void for_each_group(std::size_t numbers, const Body& body) {
    for (std::size_t first = 0; first < numbers; first += kGroup)
      body(first, std::min(kGroup, numbers - first));
  }

  void load_residues(const std::uint64_t* residues, std::size_t count, LaneVector& lanes,
                     LaneVector& scratch) const {
    kernels_.load(residues, count, pair_words(), pair_words(), 2 * modulus_.limbs, lanes.data(),
                  scratch.data());
  }

  template <typename Power>
  void raise(std::span<const std::uint64_t> bases, const Power& power, std::span<std::uint64_t> out) const {
    LaneVector lanes(montgomery_->pair_lanes());
    LaneVector table(power.table_lanes());
    LaneVector scratch(montgomery_->scratch_lanes());
    for_each_group(out.size() / pair_words(), [&](std::size_t first, std::size_t count) {
      montgomery_->load(bases.data() + first * pair_words(), count, lanes.data(), scratch.data());
      kernels_.multiply(modulus_, lanes.data(), montgomery_->power_of_r(2), lanes.data(), scratch.data());
      power.raise(lanes.data(), table.data(), scratch.data());
      kernels_.multiply(modulus_, lanes.data(), montgomery_->power_of_r(0), lanes.data(), scratch.data());
      montgomery_->store(lanes.data(), count, out.data() + first * pair_words());
    });
  }

  std::shared_ptr<const IfmaMontgomery> montgomery_;
  const IfmaKernels& kernels_;
  const IfmaModulus& modulus_;
};

}  // namespace

std::shared_ptr<const Engine> make_ifma_engine(std::span<const std::uint64_t> modulus) {
  const IfmaKernels* const kernels = ifma_kernels();
  if (kernels == nullptr) return nullptr;
  return std::make_shared<const IfmaEngine>(*kernels, modulus);
}

}  // namespace shieldfl::paillier
