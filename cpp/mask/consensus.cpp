#include "mask/consensus.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "mask/vote_kernels.h"
#include "mask/votes.h"
#include "mask/word_kernels.h"
#include "mask/words.h"
#include "parallel/parallel_for.h"

namespace shieldfl::mask {
namespace {

// The masks of one negotiation and the votes that a position needs.
struct Ballot {
  Ballot(std::span<const Bitset* const> masks, double rho) : needed(votes_needed(rho, masks.size())) {
    size = masks.front()->size();
    for (const Bitset* const mask : masks) {
      check_same_size(size, mask->size());
      words.push_back(mask->words().data());
    }
  }

  // Writes one block of the consensus, and returns how many positions it has.
  std::uint64_t decide(std::size_t first, std::uint64_t* out, std::size_t length) const {
    votes.chosen_by(words.data(), words.size(), first, needed, out, length);
    return counting.count(out, length);
  }

  const VoteKernels& votes = vote_kernels(instruction_set());
  const WordKernels& counting = word_kernels(instruction_set());
  std::uint64_t needed;
  std::uint64_t size = 0;
  std::vector<const std::uint64_t*> words;  // one for each mask
};

// A client's zones while they are written.
struct OpenZones {
  explicit OpenZones(std::size_t words) : personalised(words), noise(words) {}

  WordVector personalised;
  WordVector noise;
  std::uint64_t personalised_count = 0;
};

}  // namespace

Bitset negotiate(std::span<const Bitset* const> masks, double rho, std::size_t threads) {
  const Ballot ballot(masks, rho);
  WordVector encrypted(words_for(ballot.size));
  std::atomic<std::uint64_t> encrypted_count = 0;
  parallel_for(encrypted.size(), resolve_threads(threads), kVoteGrainWords,
               [&](std::size_t begin, std::size_t end) {
                 std::uint64_t part = 0;
                 for (std::size_t first = begin; first < end; first += kVoteBlockWords) {
                   const std::size_t length = std::min(kVoteBlockWords, end - first);
                   part += ballot.decide(first, encrypted.data() + first, length);
                 }
                 encrypted_count += part;
               });
  return Bitset::from_counted_words(std::move(encrypted), ballot.size, encrypted_count);
}

NegotiatedZones negotiate_zones(std::span<const Bitset* const> masks, double rho, std::size_t threads) {
  const Ballot ballot(masks, rho);
  const std::size_t words = words_for(ballot.size);
  WordVector encrypted(words);
  std::uint64_t encrypted_count = 0;
  std::vector<OpenZones> clients;
  for (std::size_t client = 0; client < masks.size(); ++client) clients.emplace_back(words);
  std::mutex counts_mutex;
  parallel_for(words, resolve_threads(threads), kVoteGrainWords, [&](std::size_t begin, std::size_t end) {
    std::uint64_t part_encrypted = 0;
    std::vector<std::uint64_t> part_personalised(clients.size());
    for (std::size_t first = begin; first < end; first += kVoteBlockWords) {
      const std::size_t length = std::min(kVoteBlockWords, end - first);
      std::uint64_t* const chosen = encrypted.data() + first;
      part_encrypted += ballot.decide(first, chosen, length);
      for (std::size_t client = 0; client < clients.size(); ++client) {
        part_personalised[client] += ballot.votes.split(ballot.words[client] + first, chosen,
                                                        clients[client].personalised.data() + first,
                                                        clients[client].noise.data() + first, length);
      }
    }
    const std::lock_guard lock(counts_mutex);
    encrypted_count += part_encrypted;
    for (std::size_t client = 0; client < clients.size(); ++client) {
      clients[client].personalised_count += part_personalised[client];
    }
  });

  NegotiatedZones zones;
  zones.encrypted = Bitset::from_counted_words(std::move(encrypted), ballot.size, encrypted_count);
  for (OpenZones& client : clients) {
    if (words != 0) client.noise.back() &= tail_bits(ballot.size);
    // What is in neither of the others: its count follows.
    const std::uint64_t noise_count = ballot.size - encrypted_count - client.personalised_count;
    zones.clients.push_back(
        {Bitset::from_counted_words(std::move(client.personalised), ballot.size, client.personalised_count),
         Bitset::from_counted_words(std::move(client.noise), ballot.size, noise_count)});
  }
  return zones;
}

}  // namespace shieldfl::mask
