#include "kahe/public_key.h"

#include <bit>
#include <string_view>
#include <utility>

#include "common/huge_pages.h"
#include "common/random.h"

namespace shieldfl::kahe {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kPolynomialLabel = "shieldfl kahe 1 public polynomials\0"sv;

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
    : enrolled::PublicKey<Scheme>(std::move(parameters), manifest, authority, epoch) {
  const ParameterFacts& facts = this->parameters()->facts();
  std::vector<std::uint8_t> named(kPolynomialLabel.begin(), kPolynomialLabel.end());
  const Id& parameter_id = this->parameters()->id();
  named.insert(named.end(), parameter_id.begin(), parameter_id.end());
  named.insert(named.end(), manifest.begin(), manifest.end());
  Seed seed;
  seed.bytes = long_digest(named);
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
  const std::size_t words = parameters()->digits().words();
  return std::span(polynomials_).subspan(u * words, words);
}

}  // namespace shieldfl::kahe
