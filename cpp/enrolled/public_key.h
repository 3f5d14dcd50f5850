// What is public of a session, whatever the scheme.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"
#include "enrolled/context.h"

namespace shieldfl::enrolled {

// The kinds of a scheme's frames.
struct FrameKinds {
  FrameKind public_key;
  FrameKind batch;
  FrameKind total;
  FrameKind sum_request;
  FrameKind sum_key;
};

// The id of a session's public key.
Id session_id(const Id& parameter_id, const Digest& manifest, const Id& authority, std::uint32_t epoch);

// There is no key in it: encryption takes a ClientKey beside it. Immutable. A `Scheme` states
//   kName, a literal; kKinds; Facts, with encode(), id(), max_clients, values_per_block(), format(FrameKind),
//   fixed_point(), integer_rows() and a static read(FrameReader&); Parameters, with facts(), id(),
//   sums(threads) and a static from_facts(facts).
template <typename SchemeFacts>
class PublicKey {
 public:
  using Scheme = SchemeFacts;
  using ParametersPointer = std::shared_ptr<const typename Scheme::Parameters>;

  // `manifest`: the digest of the session's manifest, which the authority of this id signed in this epoch.
  PublicKey(ParametersPointer parameters, const Digest& manifest, const Id& authority, std::uint32_t epoch)
      : parameters_(std::move(parameters)),
        manifest_(manifest),
        authority_(authority),
        epoch_(epoch),
        id_(session_id(parameters_->id(), manifest, authority, epoch)) {}

  [[nodiscard]] const ParametersPointer& parameters() const { return parameters_; }
  [[nodiscard]] const Digest& manifest() const { return manifest_; }
  [[nodiscard]] const Id& authority() const { return authority_; }
  [[nodiscard]] std::uint32_t epoch() const { return epoch_; }
  [[nodiscard]] const Id& id() const { return id_; }  // the digest of all of the above

  // What the secrets of a sum of this head are bound to. Throws Error(kParameter) or Error(kKeyMismatch) for
  // the head of another session's frame.
  template <typename Head>
  [[nodiscard]] SumContext context_of(const Head& head) const {
    if (head.layout.parameter_id != parameters_->id()) {
      throw Error(ErrorCode::kParameter, "the frame was made with other parameters than this session's");
    }
    if (head.layout.key_id != id_) {
      throw Error(ErrorCode::kKeyMismatch, "the frame was made in another session");
    }
    return {Scheme::kName, manifest_, authority_, epoch_, head.purpose, head.part, head.layout};
  }

  [[nodiscard]] std::vector<std::uint8_t> to_frame() const {
    const auto encoded = parameters_->facts().encode();
    FrameWriter writer({Scheme::kKinds.public_key, parameters_->id(), id_},
                       encoded.size() + manifest_.size() + authority_.size() + sizeof epoch_);
    writer.put_bytes(encoded);
    writer.put_bytes(manifest_);
    writer.put_bytes(authority_);
    writer.put(epoch_);
    return writer.finish();
  }

 private:
  ParametersPointer parameters_;
  Digest manifest_;
  Id authority_;
  std::uint32_t epoch_;
  Id id_;
};

// Reads a scheme's own class of PublicKey. Throws Error(kWireFormat), or Error(kParameter) for parameters of
// another version.
template <typename Key>
std::shared_ptr<const Key> read_public_key(std::span<const std::uint8_t> frame) {
  using Scheme = typename Key::Scheme;
  FrameReader reader(frame, Scheme::kKinds.public_key);
  const auto facts = Scheme::Facts::read(reader);
  Digest manifest;
  std::ranges::copy(reader.take_bytes(manifest.size()), manifest.begin());
  const Id authority = reader.take_id();
  const auto epoch = reader.template take<std::uint32_t>();
  reader.expect_end();
  if (facts.id() != reader.header().parameter_id ||
      session_id(facts.id(), manifest, authority, epoch) != reader.header().key_id) {
    throw Error(ErrorCode::kWireFormat, "the key's ids are not those of its contents: it was altered");
  }
  return std::make_shared<const Key>(Scheme::Parameters::from_facts(facts), manifest, authority, epoch);
}

}  // namespace shieldfl::enrolled
