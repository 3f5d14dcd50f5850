#include "paillier/ciphertext_sums.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/checksum_parts.h"
#include "common/crc32c.h"
#include "common/huge_pages.h"
#include "mask/words.h"
#include "paillier/packing.h"
#include "parallel/parallel_for.h"

namespace shieldfl::paillier {
namespace {

// Ciphertexts are taken by as many as a word of a set has bits.
constexpr std::size_t kAtOnce = mask::kWordBits;
// A product takes some 2 us.
constexpr std::size_t kWordsWorthAdding = 2;

}  // namespace

// The sums of some ciphertexts of one word, side by side for the engine.
class CiphertextSums::Gathered {
 public:
  explicit Gathered(CiphertextSums& sums) : sums_(sums), pairs_(kAtOnce * sums.key_->engine().pair_words()) {}

  // Of the ciphertexts in `chosen`, the set bits of word number `word`; what was not used before is 1.
  std::span<std::uint64_t> take(std::size_t word, std::uint64_t chosen) {
    const std::size_t words = sums_.key_->engine().pair_words();
    std::size_t place = 0;
    mask::for_each_bit(chosen, word * kAtOnce, [&](std::uint64_t block) {
      sums_.copy_pair(block, std::span(pairs_).subspan(place));
      place += words;
    });
    return std::span(pairs_).first(place);
  }
  void put_back(std::size_t word, std::uint64_t chosen) {
    const std::size_t words = sums_.key_->engine().pair_words();
    const std::uint64_t* from = pairs_.data();
    mask::for_each_bit(chosen, word * kAtOnce, [&](std::uint64_t block) {
      std::copy_n(from, words, sums_.pairs_.data() + block * words);
      from += words;
    });
    sums_.used_[word] |= chosen;
  }

 private:
  CiphertextSums& sums_;
  std::vector<std::uint64_t> pairs_;
};

CiphertextSums::CiphertextSums(std::shared_ptr<const PublicKey> key, std::size_t blocks)
    : key_(std::move(key)), blocks_(blocks), used_(mask::words_for(blocks), 0) {
  const std::size_t words = blocks * key_->engine().pair_words();
  pairs_.reserve(words);
  prefer_huge_pages(pairs_.data(), words * sizeof pairs_[0]);
  pairs_.resize(words);
}

void CiphertextSums::copy_pair(std::size_t block, std::span<std::uint64_t> out) const {
  const std::size_t words = key_->engine().pair_words();
  if ((used_[block / kAtOnce] >> (block % kAtOnce) & 1) != 0) {
    std::copy_n(pairs_.data() + block * words, words, out.data());
  } else {
    std::fill_n(out.data(), words, 0);
    out[0] = 1;
  }
}

void CiphertextSums::add(const CiphertextView& view, std::uint32_t weight, std::size_t threads) {
  const Engine& engine = key_->engine();
  const auto present_in = [&](std::size_t word) {
    if (view.present) return view.present->words()[word];
    return word + 1 == used_.size() ? mask::tail_bits(blocks_) : mask::kAllOnes;
  };
  threads = threads_for(threads, used_.size(), kWordsWorthAdding);
  parallel_for(used_.size(), threads, 1, [&](std::size_t begin, std::size_t end) {
    Gathered gathered(*this);
    std::vector<std::uint64_t> residues(kAtOnce * engine.pair_words());
    const std::uint64_t exponent = weight;
    std::size_t place = 0;  // in the payload
    for (std::size_t word = 0; word < begin; ++word) place += mask::count_bits(present_in(word));
    for (std::size_t word = begin; word < end; ++word) {
      const std::uint64_t present = present_in(word);
      const std::size_t count = mask::count_bits(present);
      if (count == 0) continue;
      const auto added = std::span(residues).first(count * engine.pair_words());
      read_residues(view, place, count, added);
      place += count;
      const auto sums = gathered.take(word, present);
      const bool fresh = (used_[word] & present) == 0;
      if (weight == 1 && fresh) {
        engine.to_pairs(added, sums);
      } else if (weight == 1) {
        engine.multiply_residues(added, sums);
      } else {
        engine.to_pairs(added, added);
        engine.power_public(added, {&exponent, 1}, added);
        engine.multiply(added, sums, sums);
      }
      gathered.put_back(word, present);
    }
  });
}

void CiphertextSums::add_clear(std::span<const std::int64_t> values, std::uint32_t weight,
                               std::size_t threads) {
  const Engine& engine = key_->engine();
  const Parameters& parameters = key_->parameters();
  const std::size_t capacity = parameters.values_per_ciphertext();
  threads = threads_for(threads, used_.size(), kWordsWorthAdding);
  parallel_for(used_.size(), threads, 1, [&](std::size_t begin, std::size_t end) {
    Gathered gathered(*this);
    std::vector<std::int64_t> fields(capacity);
    std::vector<std::uint64_t> plaintexts(kAtOnce * engine.words());
    for (std::size_t word = begin; word < end; ++word) {
      std::uint64_t chosen = 0;
      std::size_t count = 0;
      for (std::size_t block = word * kAtOnce; block < std::min(blocks_, (word + 1) * kAtOnce); ++block) {
        const auto here =
            values.subspan(block * capacity, std::min(capacity, values.size() - block * capacity));
        if (std::ranges::all_of(here, [](std::int64_t value) { return value == 0; })) continue;
        std::ranges::transform(here, fields.begin(), [&](std::int64_t value) { return value * weight; });
        pack_values(parameters, std::span(fields).first(here.size()), key_->modulus(),
                    std::span(plaintexts).subspan(count * engine.words(), engine.words()));
        ++count;
        chosen |= std::uint64_t{1} << (block % kAtOnce);
      }
      if (count == 0) continue;
      engine.add_plaintexts(std::span(plaintexts).first(count * engine.words()), gathered.take(word, chosen));
      gathered.put_back(word, chosen);
    }
  });
}

std::uint32_t CiphertextSums::write(std::span<std::uint8_t> payload, std::uint32_t head_checksum,
                                    std::size_t threads) const {
  const Engine& engine = key_->engine();
  const Parameters& parameters = key_->parameters();
  const std::size_t bytes = parameters.ciphertext_bytes();
  threads = threads_for(threads, used_.size(), kWordsWorthAdding);
  ChecksumParts checksums(threads);
  parallel_for(blocks_, threads, kAtOnce, [&](std::size_t begin, std::size_t end) {
    std::vector<std::uint64_t> residues(kAtOnce * engine.pair_words());
    std::uint32_t checksum = 0;
    for (std::size_t first = begin; first < end; first += kAtOnce) {
      const std::size_t count = std::min(kAtOnce, end - first);
      const auto written = std::span(residues).first(count * engine.pair_words());
      for (std::size_t i = 0; i < count; ++i) copy_pair(first + i, written.subspan(i * engine.pair_words()));
      engine.to_residues(written, written);
      const auto out = payload.subspan(first * bytes, count * bytes);
      write_residues(parameters, written, out);
      checksum = crc32c(out, checksum);
    }
    checksums.add(begin, checksum, (end - begin) * bytes);
  });
  return checksums.after(head_checksum);
}

}  // namespace shieldfl::paillier
