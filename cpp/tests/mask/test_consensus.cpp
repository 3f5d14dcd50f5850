#include <cstdint>
#include <random>
#include <vector>

#include "mask/bitset.h"
#include "mask/consensus.h"
#include "mask/votes.h"
#include "mask/zones.h"
#include "tests/check.h"
#include "tests/mask/mask_cases.h"

namespace mask_consensus_tests {

using namespace shieldfl;
using namespace shieldfl::mask;
using tests::Bools;
using tests::kSizes;
using tests::pointers;
using tests::random_clients;

namespace {

// The fused zones against a vote by vote count and a split for each client. Equal masks have equal counts,
// and split_zones checks that zones are disjoint and covering.
void check_negotiated(const std::vector<Bitset>& masks, double rho, std::size_t threads) {
  Votes votes(masks.front().size());
  for (const Bitset& mask : masks) votes.add(mask);
  const Bitset expected = votes.consensus(rho);
  CHECK(negotiate(pointers(masks), rho, threads) == expected);
  const NegotiatedZones zones = negotiate_zones(pointers(masks), rho, threads);
  CHECK(zones.encrypted == expected);
  CHECK(zones.clients.size() == masks.size());
  for (std::size_t client = 0; client < masks.size(); ++client) {
    const Zones split = split_zones(masks[client], expected);
    CHECK(zones.clients[client].personalised == split.personalised);
    CHECK(zones.clients[client].noise == split.noise);
  }
}

}  // namespace

TEST(negotiated_zones_are_those_of_each_step_for_every_threshold) {
  std::mt19937_64 generator(41);
  for (const std::size_t clients : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32}) {
    for (const std::size_t size : kSizes) {
      std::vector<Bitset> masks;
      for (const Bools& client : random_clients(clients, size, generator)) {
        masks.push_back(Bitset::from_bools(client));
      }
      for (std::size_t needed = 1; needed <= clients; ++needed) {
        check_negotiated(masks, static_cast<double>(needed) / static_cast<double>(clients), 1);
      }
    }
  }
}

TEST(negotiated_zones_of_up_to_130_clients) {
  std::mt19937_64 generator(42);
  std::vector<Bitset> masks;
  for (const Bools& client : random_clients(130, 333, generator)) {
    masks.push_back(Bitset::from_bools(client));
    for (const double rho : {1e-9, 0.3, 0.5, 0.99, 1.0}) check_negotiated(masks, rho, 1);
  }
}

TEST(negotiated_zones_do_not_depend_on_threads) {
  std::mt19937_64 generator(43);
  std::vector<Bitset> masks;
  // Several threads' worth, no multiple of 64.
  for (int client = 0; client < 5; ++client) masks.push_back(tests::random_half(3'500'003, generator));
  for (const std::size_t threads : {1, 2, 3, 7, 0}) check_negotiated(masks, 0.5, threads);
}

TEST(negotiation_refuses_bad_input) {
  const Bitset mask = Bitset::full(65);
  const Bitset other(64);
  const std::vector<const Bitset*> unequal = {&mask, &other};
  const std::vector<const Bitset*> alone = {&mask};
  CHECK_THROWS(negotiate({}, 0.5), ErrorCode::kParameter);
  CHECK_THROWS(negotiate_zones({}, 0.5), ErrorCode::kParameter);
  CHECK_THROWS(negotiate(unequal, 0.5), ErrorCode::kParameter);
  CHECK_THROWS(negotiate_zones(unequal, 0.5), ErrorCode::kParameter);
  for (const double rho : {0.0, -0.5, 1.5}) CHECK_THROWS(negotiate_zones(alone, rho), ErrorCode::kParameter);
  CHECK_THROWS(negotiate_zones(alone, 0.5, 100'000), ErrorCode::kParameter);
}

}  // namespace mask_consensus_tests
