#include "packed/block_format.h"

#include <string>

#include "common/error.h"
#include "common/verify.h"
#include "parallel/parallel_for.h"

namespace shieldfl::packed {
namespace {

// Adding or checking as many words takes a quarter of a millisecond or less where the processor has AVX-512.
constexpr std::size_t kWordsWorthAThread = std::size_t{1} << 18;

}  // namespace

BlockFormat::BlockFormat(std::size_t row_length, std::vector<RowFormat> rows)
    : row_length_(row_length), rows_(std::move(rows)) {
  for (const RowFormat& row : rows_) bytes_ += ring::packed_bytes(row_length_, row.width.bits);
}

template <typename Bytes, typename Words, typename Visit>
void BlockFormat::for_each_row(std::span<Bytes> block, std::span<Words> words, Visit visit) const {
  VERIFY(block.size() == bytes_ && words.size() == this->words());
  for (const RowFormat& row : rows_) {
    const std::size_t bytes = ring::packed_bytes(row_length_, row.width.bits);
    visit(row, block.first(bytes), words.first(row_length_));
    block = block.subspan(bytes);
    words = words.subspan(row_length_);
  }
}

void BlockFormat::pack(std::span<const std::uint64_t> in, std::span<std::uint8_t> block) const {
  for_each_row(block, in, [](const RowFormat& row, auto out, auto words) {
    ring::pack_residues(words, row.width, out);
  });
}

void BlockFormat::unpack(std::span<const std::uint8_t> block, std::span<std::uint64_t> words) const {
  for_each_row(block, words,
               [](const RowFormat& row, auto in, auto out) { ring::unpack_residues(in, row.width, out); });
}

bool BlockFormat::in_range(std::span<const std::uint8_t> block) const {
  VERIFY(block.size() == bytes_);
  bool good = true;
  for (const RowFormat& row : rows_) {
    const std::size_t bytes = ring::packed_bytes(row_length_, row.width.bits);
    good &= ring::residues_in_range(block.first(bytes), row.width, row.modulus, row_length_);
    block = block.subspan(bytes);
  }
  return good;
}

std::size_t BlockFormat::threads_for_adding(std::size_t requested, std::size_t blocks) const {
  return threads_for(requested, blocks * words(), kWordsWorthAThread);
}

void BlockFormat::check(std::span<const std::uint8_t> payload, std::size_t threads) const {
  const std::size_t blocks = payload.size() / bytes_;
  parallel_for(blocks, threads_for_adding(threads, blocks), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      if (!in_range(payload.subspan(block * bytes_, bytes_))) fail_word(block);
    }
  });
}

bool BlockFormat::accumulate(std::span<const std::uint8_t> block, std::span<std::uint64_t> sums) const {
  bool good = true;
  for_each_row(block, sums, [&good](const RowFormat& row, auto in, auto out) {
    good &= ring::accumulate_residues(in, row.width, row.modulus, out);
  });
  return good;
}

void BlockFormat::subtract(std::span<const std::uint8_t> block, std::span<std::uint64_t> sums) const {
  for_each_row(block, sums,
               [](const RowFormat& row, auto in, auto out) { ring::subtract_residues(in, row.width, out); });
}

void fail_word(std::size_t block) {
  throw Error(ErrorCode::kWireFormat, "ciphertext " + std::to_string(block) +
                                          " has a residue above its modulus: the frame was altered");
}

}  // namespace shieldfl::packed
