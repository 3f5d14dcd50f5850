// What is public of a session, and the uniform polynomials that follow from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "enrolled/public_key.h"
#include "kahe/parameters.h"

namespace shieldfl::kahe {

struct Scheme {
  using Facts = ParameterFacts;
  using Parameters = kahe::Parameters;

  static constexpr std::string_view kName = "kahe";
  static constexpr enrolled::FrameKinds kKinds = {FrameKind::kKahePublicKey, FrameKind::kKaheBatch,
                                                  FrameKind::kKaheTotal, FrameKind::kKaheSumRequest,
                                                  FrameKind::kKaheSumKey};
};

class PublicKey : public enrolled::PublicKey<Scheme> {
 public:
  PublicKey(ParametersPointer parameters, const Digest& manifest, const Id& authority, std::uint32_t epoch);

  // Throws Error(kWireFormat), or Error(kParameter) for ring parameters of another version.
  static std::shared_ptr<const PublicKey> from_frame(std::span<const std::uint8_t> frame) {
    return enrolled::read_public_key<PublicKey>(frame);
  }

  // a_u in NTT form, a row of degree residues for each prime; u < kBlocksPerSecret. They are drawn from the
  // digest of parameters and manifest here, and never come from anybody else: a = 0 would send values in the
  // clear, and one with a trapdoor would open them.
  [[nodiscard]] std::span<const std::uint64_t> polynomial(std::size_t u) const;

 private:
  std::vector<std::uint64_t> polynomials_;
};

}  // namespace shieldfl::kahe
