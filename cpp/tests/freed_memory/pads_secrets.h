// What one-time pads must not leave behind, beside keys and values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/freed_memory/enrolled_memory.h"

namespace shieldfl::tests {

using PadsSession = EnrolledSession<PadsTypes>;

// Pads of 32 bits and of 64.
template <>
inline std::vector<pads::ParameterRequest> requests_for_memory<PadsTypes>() {
  return {{4, 24, 20}, {4, 38, 30}};
}

// A client's pads, which are returned, block after block.
inline std::vector<std::uint64_t> add_frame_secret(Secrets& secrets, const PadsSession& session,
                                                   std::uint32_t client, const Frame& batch) {
  const auto view = pads::CiphertextView::parse(batch, FrameKind::kPadsBatch);
  const Seed seed = seed_of_frame(session, client, view);
  secrets.add("the seed of the pads", seed.bytes);
  const pads::ParameterFacts& facts = session.facts();
  const std::size_t pad_bytes = facts.field_bits() <= 32 ? 4 : 8;
  std::vector<std::uint64_t> all;
  for (std::size_t block = 0; block < view.head.block_count(); ++block) {
    std::vector<std::uint8_t> bytes(pads::kBlockWords * pad_bytes);
    RandomStream(seed, block).fill(bytes);
    secrets.add("the random bytes of the pads", bytes);
    for (std::size_t i = 0; i < pads::kBlockWords; ++i) {
      std::uint64_t pad = 0;
      std::memcpy(&pad, bytes.data() + i * pad_bytes, pad_bytes);
      all.push_back(pad & facts.field_mask());
    }
  }
  secrets.add("the secret in words", all);
  return all;
}

// Pads need no other randomness.
inline void add_errors(Secrets&, const PadsSession&, SeedSource&) {}

// All clients' pads, and their sums on the way to that of all.
inline void add_sum_of_secrets(Secrets& secrets, const EnrolledRound<PadsTypes>& round) {
  std::vector<std::uint64_t> sum;
  for (std::uint32_t client = 0; client < kClients; ++client) {
    const auto own = add_frame_secret(secrets, round.session, client, round.batches[client]);
    sum.resize(own.size());
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] = (sum[i] + own[i]) & round.session.facts().field_mask();
    secrets.add("the sum of secrets", sum);
  }
}

}  // namespace shieldfl::tests
