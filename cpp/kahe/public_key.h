// What is public of a session, and the uniform polynomials that follow from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kahe/context.h"
#include "kahe/parameters.h"

namespace shieldfl::kahe {

// There is no key in it: encryption takes a ClientKey beside it. Immutable.
class PublicKey {
 public:
  // `manifest`: the digest of the session's manifest, which the authority of this id signed in this epoch.
  PublicKey(ParametersPointer parameters, const Digest& manifest, const Id& authority, std::uint32_t epoch);

  [[nodiscard]] const ParametersPointer& parameters() const { return parameters_; }
  [[nodiscard]] const Digest& manifest() const { return manifest_; }
  [[nodiscard]] const Id& authority() const { return authority_; }
  [[nodiscard]] std::uint32_t epoch() const { return epoch_; }
  [[nodiscard]] const Id& id() const { return id_; }  // the digest of all of the above

  // a_u in NTT form, a row of degree residues for each prime; u < kBlocksPerSecret. They are drawn from the
  // digest of parameters and manifest here, and never come from anybody else: a = 0 would send values in the
  // clear, and one with a trapdoor would open them.
  [[nodiscard]] std::span<const std::uint64_t> polynomial(std::size_t u) const;

  [[nodiscard]] std::vector<std::uint8_t> to_frame() const;
  // Throws Error(kWireFormat), or Error(kParameter) for ring parameters of another version.
  static std::shared_ptr<const PublicKey> from_frame(std::span<const std::uint8_t> frame);

 private:
  ParametersPointer parameters_;
  Digest manifest_;
  Id authority_;
  std::uint32_t epoch_;
  Id id_;
  std::vector<std::uint64_t> polynomials_;
};

}  // namespace shieldfl::kahe
