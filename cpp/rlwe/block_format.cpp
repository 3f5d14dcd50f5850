#include "rlwe/block_format.h"

#include <string>

#include "common/error.h"
#include "common/verify.h"
#include "parallel/parallel_for.h"

namespace shieldfl::rlwe {

BlockFormat::BlockFormat(std::size_t degree, std::vector<RowFormat> rows)
    : degree_(degree), rows_(std::move(rows)) {
  for (const RowFormat& row : rows_) bytes_ += ring::packed_bytes(degree_, row.width.bits);
}

template <typename Bytes, typename Words, typename Visit>
void BlockFormat::for_each_row(std::span<Bytes> block, std::span<Words> digits, Visit visit) const {
  VERIFY(block.size() == bytes_ && digits.size() == words());
  for (const RowFormat& row : rows_) {
    const std::size_t bytes = ring::packed_bytes(degree_, row.width.bits);
    visit(row, block.first(bytes), digits.first(degree_));
    block = block.subspan(bytes);
    digits = digits.subspan(degree_);
  }
}

void BlockFormat::pack(std::span<const std::uint64_t> digits, std::span<std::uint8_t> block) const {
  for_each_row(block, digits,
               [](const RowFormat& row, auto out, auto in) { ring::pack_residues(in, row.width, out); });
}

void BlockFormat::unpack(std::span<const std::uint8_t> block, std::span<std::uint64_t> digits) const {
  for_each_row(block, digits,
               [](const RowFormat& row, auto in, auto out) { ring::unpack_residues(in, row.width, out); });
}

bool BlockFormat::in_range(std::span<const std::uint8_t> block) const {
  VERIFY(block.size() == bytes_);
  bool good = true;
  for (const RowFormat& row : rows_) {
    const std::size_t bytes = ring::packed_bytes(degree_, row.width.bits);
    good &= ring::residues_in_range(block.first(bytes), row.width, row.prime, degree_);
    block = block.subspan(bytes);
  }
  return good;
}

void BlockFormat::check(std::span<const std::uint8_t> payload, std::size_t threads) const {
  const std::size_t blocks = payload.size() / bytes_;
  parallel_for(blocks, threads_for(threads, blocks, kBlocksWorthAdding), 1,
               [&](std::size_t begin, std::size_t end) {
                 for (std::size_t block = begin; block < end; ++block) {
                   if (!in_range(payload.subspan(block * bytes_, bytes_))) fail_digit(block);
                 }
               });
}

bool BlockFormat::accumulate(std::span<const std::uint8_t> block, std::span<std::uint64_t> sums) const {
  bool good = true;
  for_each_row(block, sums, [&good](const RowFormat& row, auto in, auto out) {
    good &= ring::accumulate_residues(in, row.width, row.prime, out);
  });
  return good;
}

void BlockFormat::subtract(std::span<const std::uint8_t> block, std::span<std::uint64_t> sums) const {
  for_each_row(block, sums,
               [](const RowFormat& row, auto in, auto out) { ring::subtract_residues(in, row.width, out); });
}

void pack_residues(const DigitBasis& digits, const BlockFormat& format, std::span<std::uint64_t> residues,
                   std::span<std::uint8_t> block) {
  VERIFY(residues.size() == format.words() && residues.size() % digits.words() == 0);
  for (std::size_t first = 0; first < residues.size(); first += digits.words()) {
    digits.from_residues(residues.subspan(first, digits.words()));
  }
  format.pack(residues, block);
}

void fail_digit(std::size_t block) {
  throw Error(ErrorCode::kWireFormat, "ciphertext " + std::to_string(block) +
                                          " has a residue above its modulus: the frame was altered");
}

}  // namespace shieldfl::rlwe
