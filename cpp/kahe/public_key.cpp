#include "kahe/public_key.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "common/error.h"
#include "common/huge_pages.h"

namespace shieldfl::kahe {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kPolynomialLabel = "shieldfl kahe 1 public polynomials\0"sv;

std::vector<std::uint8_t> labelled(std::string_view label, const Id& parameter_id, const Digest& manifest) {
  std::vector<std::uint8_t> bytes(label.begin(), label.end());
  bytes.insert(bytes.end(), parameter_id.begin(), parameter_id.end());
  bytes.insert(bytes.end(), manifest.begin(), manifest.end());
  return bytes;
}

Id id_of(const Id& parameter_id, const Digest& manifest, const Id& authority, std::uint32_t epoch) {
  auto bytes = labelled({}, parameter_id, manifest);
  bytes.insert(bytes.end(), authority.begin(), authority.end());
  const auto* data = reinterpret_cast<const std::uint8_t*>(&epoch);
  bytes.insert(bytes.end(), data, data + sizeof epoch);
  return digest(bytes);
}

// Uniform residues: the top bits of the stream's words, those below q.
void draw_uniform(RandomStream& stream, std::uint64_t q, std::span<std::uint64_t> row) {
  const int shift = 64 - static_cast<int>(std::bit_width(q));
  for (std::uint64_t& residue : row) {
    do {
      residue = stream.next_u64() >> shift;
    } while (residue >= q);
  }
}

}  // namespace

PublicKey::PublicKey(ParametersPointer parameters, const Digest& manifest, const Id& authority,
                     std::uint32_t epoch)
    : parameters_(std::move(parameters)),
      manifest_(manifest),
      authority_(authority),
      epoch_(epoch),
      id_(id_of(parameters_->id(), manifest, authority, epoch)) {
  const ParameterFacts& facts = parameters_->facts();
  Seed seed;
  seed.bytes = long_digest(labelled(kPolynomialLabel, parameters_->id(), manifest));
  const std::size_t words = kBlocksPerSecret * facts.primes.size() * facts.degree;
  polynomials_.reserve(words);
  prefer_huge_pages(polynomials_.data(), words * sizeof polynomials_[0]);
  polynomials_.resize(words);
  for (std::size_t row = 0; row < kBlocksPerSecret * facts.primes.size(); ++row) {
    RandomStream stream(seed, row);
    draw_uniform(stream, facts.primes[row % facts.primes.size()],
                 std::span(polynomials_).subspan(row * facts.degree, facts.degree));
  }
}

std::span<const std::uint64_t> PublicKey::polynomial(std::size_t u) const {
  const std::size_t words = parameters_->digits().words();
  return std::span(polynomials_).subspan(u * words, words);
}

std::vector<std::uint8_t> PublicKey::to_frame() const {
  const auto encoded = parameters_->facts().encode();
  FrameWriter writer({FrameKind::kKahePublicKey, parameters_->id(), id_},
                     encoded.size() + manifest_.size() + authority_.size() + sizeof epoch_);
  writer.put_bytes(encoded);
  writer.put_bytes(manifest_);
  writer.put_bytes(authority_);
  writer.put(epoch_);
  return writer.finish();
}

std::shared_ptr<const PublicKey> PublicKey::from_frame(std::span<const std::uint8_t> frame) {
  FrameReader reader(frame, FrameKind::kKahePublicKey);
  const ParameterFacts facts = ParameterFacts::read(reader);
  Digest manifest;
  std::ranges::copy(reader.take_bytes(manifest.size()), manifest.begin());
  const Id authority = reader.take_id();
  const auto epoch = reader.take<std::uint32_t>();
  reader.expect_end();
  if (facts.id() != reader.header().parameter_id ||
      id_of(facts.id(), manifest, authority, epoch) != reader.header().key_id) {
    throw Error(ErrorCode::kWireFormat, "the key's ids are not those of its contents: it was altered");
  }
  return std::make_shared<const PublicKey>(Parameters::from_facts(facts), manifest, authority, epoch);
}

}  // namespace shieldfl::kahe
