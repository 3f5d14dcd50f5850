// What clients, aggregator and authorities make of fixed seeds, to the last bit.
#include <cstdint>
#include <vector>

#include "tests/check.h"
#include "tests/enrolled/enrolled_cases.h"
#include "tests/enrolled/frame_samples.h"
#include "tests/known_bits.h"

namespace enrolled_known_bits_tests {

using namespace shieldfl;
using namespace shieldfl::tests;

namespace {

// Three clients of five under two authorities, with a mask and weights.
template <typename Types>
KnownBits bits_of_a_round(const typename Types::ParameterRequest& parameters) {
  constexpr std::uint64_t kRound = 3;
  const EnrolledSession<Types> session(parameters, parameters.max_clients, 1, 2);
  const mask::Bitset mask = known_mask(10'007, 1);
  InsecureTestRandom seeds(2026);
  std::vector<Frame> batches;
  for (const std::uint32_t client : {0U, 2U, 4U}) {
    const double limit = session.facts().fixed_point().value_limit();
    batches.push_back(encrypt(session, client, known_values<double>(mask.size(), limit, client), seeds,
                              kRound, {.purpose = kUpdate, .weight = 0.5}, &mask));
  }
  const Frame total = total_of(session, batches);
  const auto request = session.request_of(total);
  const scheme::OpenedSums opened = open(session, total);
  CHECK(opened.weight_sum == 1.5);
  return {{"public key", bits_of(session.key->to_frame())},
          {"first batch", bits_of(batches[0])},
          {"second batch", bits_of(batches[1])},
          {"third batch", bits_of(batches[2])},
          {"total", bits_of(total)},
          {"request", bits_of(request.to_frame())},
          {"first answer", bits_of(frame_of(answer(session, request, 2, 0)))},
          {"second answer", bits_of(frame_of(answer(session, request, 2, 1)))},
          {"opened sums", bits_of(opened.values)}};
}

}  // namespace

TEST(rounds_of_kahe_have_known_bits) {
  check_known_bits("kahe, ring of 2048", bits_of_a_round<KaheTypes>({5, 24, 20, 2048}),
                   {{"public key", "67237af3202b88be"},
                    {"first batch", "3b7cfc6a12a03ce9"},
                    {"second batch", "f43d713760def616"},
                    {"third batch", "1344f029acd947e7"},
                    {"total", "220da4fb175dcb52"},
                    {"request", "50e3d9323d341bf1"},
                    {"first answer", "df888881f76b7733"},
                    {"second answer", "2079d6949b8e32ce"},
                    {"opened sums", "f9d3c4a5311ec0c6"}});
  check_known_bits("kahe, ring of 4096", bits_of_a_round<KaheTypes>({5, 24, 20, 4096}),
                   {{"public key", "8c0bb218effad24a"},
                    {"first batch", "622c6f16b86c6780"},
                    {"second batch", "2e740d4556cdc95f"},
                    {"third batch", "9449216fe76f6f4f"},
                    {"total", "d7e1f89d5bae3cc6"},
                    {"request", "ae21c6620504e418"},
                    {"first answer", "ebf87b2b31093237"},
                    {"second answer", "113d02c79a511ce7"},
                    {"opened sums", "f9d3c4a5311ec0c6"}});
  check_known_bits("kahe, ring of 8192", bits_of_a_round<KaheTypes>({5, 24, 20, 8192}),
                   {{"public key", "df29f13e4212725a"},
                    {"first batch", "844c4ace1a039379"},
                    {"second batch", "d01f88ae6045e9a7"},
                    {"third batch", "98b6c1a733b15a13"},
                    {"total", "95f4c6d6f6a572a6"},
                    {"request", "5d0f2c3c268c5188"},
                    {"first answer", "8d857d878642097e"},
                    {"second answer", "eba9883028069c66"},
                    {"opened sums", "f9d3c4a5311ec0c6"}});
}

TEST(rounds_of_pads_have_known_bits) {
  check_known_bits("pads", bits_of_a_round<PadsTypes>({5, 24, 20}),
                   {{"public key", "42968d122c80ba0c"},
                    {"first batch", "abcdee93ae12a0d7"},
                    {"second batch", "e39bc1445979ea8d"},
                    {"third batch", "3596f7b9bb880e9d"},
                    {"total", "4dfbd4c98e1dc7a9"},
                    {"request", "d4ca46adc64acd9e"},
                    {"first answer", "52ccdb8f780e0f62"},
                    {"second answer", "f23fa06343265867"},
                    {"opened sums", "f9d3c4a5311ec0c6"}});
  check_known_bits("pads of few bits", bits_of_a_round<PadsTypes>({5, 8, 4}),
                   {{"public key", "5b1bc9504ea56910"},
                    {"first batch", "9e652a3ad463ff39"},
                    {"second batch", "eb140d186df62acb"},
                    {"third batch", "a88b414ddad7be23"},
                    {"total", "bdff4fa521aadcad"},
                    {"request", "8a0e84fd64e6a91c"},
                    {"first answer", "07f7f6e5e248122f"},
                    {"second answer", "11faba6978d354fa"},
                    {"opened sums", "4c9b4a3956b102dc"}});
}

}  // namespace enrolled_known_bits_tests
