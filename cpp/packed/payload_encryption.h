// What encryption into packed blocks does with an update, under any key: reads it block by block, on several
// threads, and writes the ciphertexts and the frame's checksum.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "common/checksum_parts.h"
#include "common/crc32c.h"
#include "common/secure_memory.h"
#include "common/taint.h"
#include "mask/bitset.h"
#include "mask/rank_index.h"
#include "parallel/parallel_for.h"
#include "scheme/field_reader.h"
#include "scheme/value_pieces.h"

namespace shieldfl::packed {

// How the integers of one ciphertext lie: rows of `row_length`, the first `row_values` of each from the
// update.
struct IntegerRows {
  std::size_t rows;
  std::size_t row_length;
  std::size_t row_values;
};

// What is encrypted. Refers to all it is given.
template <typename T>
struct Plaintext {
  scheme::ValuePieces<T> values;
  const mask::Bitset* mask;  // null for all positions
  scheme::FixedPoint fixed_point;
  scheme::Layout layout;
  std::optional<std::int64_t> weight;  // as quantise_weight gives it
  bool clip;                           // saturate what is out of range, instead of refusing it
};

// Fills `payload`, blocks of the same length each, and returns how values came through. `make_encryption()`
// gives each thread a functor (block, integers, number of values, out). `blocks_worth_a_thread`: as for
// threads_for(). `checksum`: of what is before the payload, and then of both. Throws Error(kRange) that names
// the lowest position whose value cannot be encrypted; what `payload` then holds is of no use to anybody.
template <typename T, typename MakeEncryption>
scheme::ValueCounts encrypt_payload(const Plaintext<T>& plaintext, const IntegerRows& shape,
                                    std::size_t requested_threads, std::size_t blocks_worth_a_thread,
                                    std::span<std::uint8_t> payload, std::uint32_t& checksum,
                                    MakeEncryption make_encryption) {
  std::optional<mask::RankIndex> ranks;
  if (plaintext.mask != nullptr && plaintext.mask->count() != plaintext.mask->size()) {
    ranks.emplace(*plaintext.mask, requested_threads);
  }
  const std::size_t blocks = plaintext.layout.block_count(shape.rows * shape.row_values);
  const std::size_t threads = threads_for(requested_threads, blocks, blocks_worth_a_thread);
  const std::size_t block_bytes = blocks == 0 ? 0 : payload.size() / blocks;

  ChecksumParts checksums(threads);
  std::mutex result_mutex;
  scheme::ValueCounts counts;
  std::uint64_t refused = scheme::ValueReader<T>::kNone;
  parallel_for(blocks, threads, 1, [&](std::size_t begin, std::size_t end) {
    scheme::FieldReader<T> reader(plaintext.values, ranks ? &*ranks : nullptr, plaintext.fixed_point,
                                  plaintext.layout, plaintext.weight, plaintext.clip);
    auto encrypt_block = make_encryption();
    SecretVector<std::int64_t> integers(shape.rows * shape.row_length);
    std::uint32_t part_checksum = 0;
    for (std::size_t block = begin; block < end; ++block) {
      std::size_t count = 0;
      for (std::size_t row = 0; row < shape.rows; ++row) {
        count += reader.read(block * shape.rows + row,
                             std::span(integers).subspan(row * shape.row_length, shape.row_values));
      }
      // Nothing of this batch will be sent; the rest is read for a lower position to name.
      if (reader.reader().refused_position != scheme::ValueReader<T>::kNone) continue;

      const auto out = payload.subspan(block * block_bytes, block_bytes);
      encrypt_block(block, std::span<const std::int64_t>(integers), count, out);
      part_checksum = crc32c(out, part_checksum);
    }
    checksums.add(begin, part_checksum, (end - begin) * block_bytes);
    const std::lock_guard lock(result_mutex);
    counts += reader.reader().counts;
    refused = std::min(refused, reader.reader().refused_position);
  });
  if (refused != scheme::ValueReader<T>::kNone) {
    scheme::refuse_value(plaintext.fixed_point, refused, static_cast<double>(plaintext.values[refused]));
  }
  checksum = checksums.after(checksum);
  // The client's own figures, for itself.
  declassify(&counts, sizeof counts);
  return counts;
}

}  // namespace shieldfl::packed
