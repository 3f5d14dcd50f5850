#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/check.h"
#include "tests/ckks/ckks_cases.h"
#include "tests/packed/damaged_frames.h"

namespace ckks_aggregator_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using tests::encrypt;
using tests::Frame;
using tests::FrameOffsets;
using tests::key_pair;
using tests::Values;
using tests::with_field;

namespace {

const ParameterRequest kExact = {Packing::kExact, 4, 24, 20, {}};
const ParameterRequest kSlots = {Packing::kSlots, 4, 16, 10, {}};
constexpr std::size_t kCount = 2500;

Frame batch_of(const KeyPair& keys, double value, std::uint64_t round = 3, std::size_t count = kCount) {
  SystemSeedSource seeds;
  EncryptOptions options;
  options.round = round;
  return encrypt(keys, Values(count, value), seeds, options);
}

// An aggregator that holds one batch refuses the frame with the code, changes nothing, and goes on.
void check_refused(const KeyPair& keys, const Frame& refused, ErrorCode code) {
  Aggregator aggregator(keys.public_key, {.round = 3}, 2);
  CHECK_THROWS(tests::total_of(aggregator), ErrorCode::kParameter);
  aggregator.add(batch_of(keys, 1.5));
  const Frame before = tests::total_of(aggregator);
  CHECK_THROWS((aggregator.add(refused), 0), code);
  CHECK(tests::total_of(aggregator) == before);
  CHECK(aggregator.clients() == 1 && aggregator.round() == 3U);
  aggregator.add(batch_of(keys, -0.25));
  CHECK(aggregator.clients() == 2);
  const OpenedSums opened = tests::open(keys, tests::total_of(aggregator));
  CHECK(opened.values.size() == kCount);
  for (const double value : opened.values) CHECK(std::fabs(value - 1.25) < 0x1p-10);
}

}  // namespace

TEST(an_aggregator_refuses_what_does_not_belong) {
  SystemSeedSource seeds;
  for (const ParameterRequest& request : {kExact, kSlots}) {
    const KeyPair& keys = key_pair(request);
    ParameterRequest other = request;
    other.max_clients = 5;
    check_refused(keys, batch_of(key_pair(other), 1.0), ErrorCode::kParameter);
    const KeyPair foreign = generate_keys(keys.public_key->parameters(), seeds);
    check_refused(keys, batch_of(foreign, 1.0), ErrorCode::kKeyMismatch);
    check_refused(keys, batch_of(keys, 1.0, 4), ErrorCode::kPolicy);
    check_refused(keys, batch_of(keys, 1.0, 3, kCount - 1), ErrorCode::kParameter);

    EncryptOptions options;
    options.round = 3;
    options.weight = 1.0;
    check_refused(keys, encrypt(keys, Values(kCount, 1.0), seeds, options), ErrorCode::kParameter);
    // As many values, but from other positions.
    options.weight.reset();
    const mask::Bitset mask = ~mask::Bitset::from_indices(std::vector<std::int64_t>{17}, kCount + 1);
    check_refused(keys, encrypt(keys, Values(kCount + 1, 1.0), seeds, options, &mask), ErrorCode::kParameter);
    check_refused(keys, tests::total_of(keys, {batch_of(keys, 1.0)}), ErrorCode::kWireFormat);
    check_refused(keys, keys.public_key->to_frame(), ErrorCode::kWireFormat);
    check_refused(keys, {}, ErrorCode::kWireFormat);
  }
}

TEST(an_aggregator_refuses_damaged_frames) {
  for (const ParameterRequest& request : {kExact, kSlots}) {
    const KeyPair& keys = key_pair(request);
    const Frame frame = batch_of(keys, 1.0);
    const FrameOffsets at(tests::facts_of(keys));
    Frame altered = frame;
    altered[at.payload(1) + 100] ^= 1;
    check_refused(keys, altered, ErrorCode::kWireFormat);  // the checksum
    // Damage to what another key, round or selection would differ in is damage first of all.
    for (const std::size_t offset : {std::size_t{16}, std::size_t{32}, at.round, at.mask_id}) {
      altered = frame;
      altered[offset] ^= 1;
      check_refused(keys, altered, ErrorCode::kWireFormat);
    }
    for (const std::size_t size : {std::size_t{60}, at.payload(1), frame.size() / 2, frame.size() - 1}) {
      Frame cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
      check_refused(keys, cut, ErrorCode::kWireFormat);
      tests::reseal(cut);
      check_refused(keys, cut, ErrorCode::kWireFormat);
    }
    Frame longer = frame;
    longer.insert(longer.end(), tests::facts_of(keys).format(FrameKind::kCkksBatch).bytes(), std::uint8_t{0});
    tests::reseal(longer);
    check_refused(keys, longer, ErrorCode::kWireFormat);
    // The right length, but a residue above its modulus.
    check_refused(keys, with_field(frame, at.payload(1), ~std::uint64_t{0}), ErrorCode::kWireFormat);
    // Counts that no frame has, or that this one is too short or too long for.
    for (const std::uint64_t count :
         {std::uint64_t{0}, std::uint64_t{1} << 31, scheme::kMaxValueCount, scheme::kMaxValueCount + 1,
          std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
      check_refused(keys, with_field(frame, at.value_count, count), ErrorCode::kWireFormat);
    }
    for (const std::uint32_t clients : {0U, 2U, 1U << 31, ~0U}) {
      check_refused(keys, with_field(frame, at.clients, clients), ErrorCode::kWireFormat);
    }
    for (const std::uint32_t flags : {2U, 3U, 1U << 31}) {
      check_refused(keys, with_field(frame, at.flags, flags), ErrorCode::kWireFormat);
    }
    check_refused(keys, with_field(frame, 32, std::uint8_t{static_cast<std::uint8_t>(frame[32] ^ 1)}),
                  ErrorCode::kKeyMismatch);
    check_refused(keys, with_field(frame, 16, std::uint8_t{static_cast<std::uint8_t>(frame[16] ^ 1)}),
                  ErrorCode::kWireFormat);
    check_refused(keys, with_field(frame, at.round, std::uint64_t{1} << 63), ErrorCode::kPolicy);
    // Same number of ciphertexts, another number of values in the last one.
    check_refused(keys, with_field(frame, at.value_count, std::uint64_t{kCount - 1}), ErrorCode::kParameter);
  }
}

TEST(an_aggregator_counts_a_batch_once_and_clients_to_the_limit) {
  const KeyPair& keys = key_pair(kExact);
  Aggregator aggregator(keys.public_key, {}, 1);
  const Frame first = batch_of(keys, 1.0);
  aggregator.add(first);
  CHECK(aggregator.round() == 3U);  // the first batch decided
  CHECK_THROWS((aggregator.add(first), 0), ErrorCode::kDuplicateFrame);
  CHECK_THROWS((aggregator.add(batch_of(keys, 1.0, 2)), 0), ErrorCode::kPolicy);
  for (int i = 1; i < 4; ++i) aggregator.add(batch_of(keys, 1.0));
  const Frame full = tests::total_of(aggregator);
  CHECK_THROWS((aggregator.add(batch_of(keys, 1.0)), 0), ErrorCode::kCapacity);
  CHECK_THROWS((aggregator.add(first), 0), ErrorCode::kDuplicateFrame);
  CHECK(tests::total_of(aggregator) == full && aggregator.clients() == 4);
  for (const double value : tests::open(keys, full).values) CHECK(value == 4.0);
}

TEST(the_order_of_clients_does_not_matter) {
  std::mt19937_64 generator(131);
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(kExact);
  std::vector<Frame> batches;
  for (int i = 0; i < 4; ++i) {
    batches.push_back(
        encrypt(keys, tests::random_values(*keys.public_key->parameters(), kCount, generator), seeds));
  }
  const Frame total = tests::total_of(keys, batches);
  for (int i = 0; i < 5; ++i) {
    std::shuffle(batches.begin(), batches.end(), generator);
    CHECK(tests::total_of(keys, batches) == total);
  }
}

TEST(batches_without_values_are_summed_too) {
  SystemSeedSource seeds;
  for (const ParameterRequest& request : {kExact, kSlots}) {
    const KeyPair& keys = key_pair(request);
    const mask::Bitset none(100);
    std::vector<Frame> batches;
    for (int i = 0; i < 3; ++i) batches.push_back(encrypt(keys, Values(100, 1.0), seeds, {}, &none));
    CHECK(batches[0].size() < 200);
    const Frame total = tests::total_of(keys, batches);
    const CiphertextView view = CiphertextView::parse(total, FrameKind::kCkksTotal);
    CHECK(view.frame_ids.size() == 3 && block_count(view.facts, view.layout) == 0);
    CHECK(tests::open(keys, total).values.empty());
  }
}

TEST(altered_totals_are_refused) {
  const KeyPair& keys = key_pair(kExact);
  const FrameOffsets at(tests::facts_of(keys));
  const Frame total = tests::total_of(keys, {batch_of(keys, 1.0), batch_of(keys, 1.0), batch_of(keys, 1.0)});
  const auto refuses = [](const Frame& frame) {
    CHECK_THROWS(CiphertextView::parse(frame, FrameKind::kCkksTotal), ErrorCode::kWireFormat);
  };
  CHECK(CiphertextView::parse(total, FrameKind::kCkksTotal).frame_ids.size() == 3);
  // More clients than ids, than the parameters allow, or fewer than there are ids for.
  for (const std::uint32_t clients : {0U, 1U, 2U, 4U, 5U, 1U << 31, ~0U}) {
    refuses(with_field(total, at.clients, clients));
  }
  Frame duplicated = total;
  std::copy_n(duplicated.begin() + static_cast<std::ptrdiff_t>(at.frame_ids), 16,
              duplicated.begin() + static_cast<std::ptrdiff_t>(at.frame_ids) + 16);
  tests::reseal(duplicated);
  refuses(duplicated);
  Frame unsorted = total;
  std::swap_ranges(unsorted.begin() + static_cast<std::ptrdiff_t>(at.frame_ids),
                   unsorted.begin() + static_cast<std::ptrdiff_t>(at.frame_ids) + 16,
                   unsorted.begin() + static_cast<std::ptrdiff_t>(at.frame_ids) + 16);
  tests::reseal(unsorted);
  refuses(unsorted);
}

TEST(what_is_expected_decides_and_not_the_first_batch) {
  const KeyPair& keys = key_pair(kExact);
  std::vector<std::uint8_t> every_other(kCount, 0);
  for (std::size_t i = 0; i < kCount; i += 2) every_other[i] = 1;
  const auto positions_of = [](const mask::Bitset& mask) {
    return scheme::Expected::Positions{mask.content_id(), mask.count()};
  };
  const scheme::Expected expected{
      .round = 3, .positions = positions_of(mask::Bitset::full(kCount)), .weighted = false};
  Aggregator aggregator(keys.public_key, expected, 1);
  SystemSeedSource seeds;
  EncryptOptions options;
  options.round = 3;
  options.weight = 0.5;
  CHECK_THROWS((aggregator.add(encrypt(keys, Values(kCount, 1.0), seeds, options)), 0),
               ErrorCode::kParameter);
  CHECK_THROWS((aggregator.add(batch_of(keys, 1.0, 3, kCount - 1)), 0), ErrorCode::kParameter);
  CHECK_THROWS((aggregator.add(batch_of(keys, 1.0, 4)), 0), ErrorCode::kPolicy);
  // The positions' identifier is right, and the number of values is not.
  scheme::Expected fewer = expected;
  fewer.positions->count = kCount - 1;
  Aggregator of_fewer(keys.public_key, fewer, 1);
  CHECK_THROWS((of_fewer.add(batch_of(keys, 1.0)), 0), ErrorCode::kParameter);
  CHECK(aggregator.clients() == 0 && aggregator.round() == 3U);
  aggregator.add(batch_of(keys, 1.0));
  CHECK(aggregator.clients() == 1);
  Aggregator of_half(
      keys.public_key,
      {.round = {}, .positions = positions_of(mask::Bitset::from_bools(every_other)), .weighted = {}}, 1);
  CHECK_THROWS((of_half.add(batch_of(keys, 1.0)), 0), ErrorCode::kParameter);
  CHECK(of_half.clients() == 0 && !of_half.round());
}

TEST(only_totals_under_the_own_key_are_opened) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(kExact);
  const Frame batch = batch_of(keys, 1.0);
  const Frame total = tests::total_of(keys, {batch});
  const auto parsed = CiphertextView::parse(batch, FrameKind::kCkksBatch);
  CHECK_THROWS(Decryptor(keys.secret_key).open(parsed, 1), ErrorCode::kPolicy);
  CHECK_THROWS(Decryptor(keys.secret_key).insecure_open_unflooded(parsed, 1), ErrorCode::kPolicy);
  Aggregator aggregator(keys.public_key, {}, 1);
  CHECK_THROWS((aggregator.add(CiphertextView::parse(total, FrameKind::kCkksTotal)), 0),
               ErrorCode::kWireFormat);
  CHECK_THROWS(tests::open(generate_keys(keys.public_key->parameters(), seeds), total),
               ErrorCode::kKeyMismatch);
  CHECK_THROWS(tests::open(key_pair({Packing::kExact, 5, 24, 20, {}}), total), ErrorCode::kParameter);
  CHECK_THROWS(tests::open(keys, total, 100'000), ErrorCode::kParameter);
}

TEST(residues_are_below_their_modulus) {
  for (const ParameterRequest& request : {kExact, kSlots}) {
    const KeyPair& keys = key_pair(request);
    const ParameterFacts& facts = tests::facts_of(keys);
    const Frame batch = batch_of(keys, 1.0);
    const Frame total = tests::total_of(keys, {batch});
    for (const FrameKind kind : {FrameKind::kCkksBatch, FrameKind::kCkksTotal}) {
      const CiphertextView view = CiphertextView::parse(kind == FrameKind::kCkksBatch ? batch : total, kind);
      // The first and the last residue of every row: what the largest travels as, and one more.
      for (std::size_t row = 0; row < facts.row_count(); ++row) {
        for (const std::size_t i : {std::size_t{0}, facts.degree - std::size_t{1}}) {
          const std::uint64_t q = facts.format(kind).rows()[row].modulus;
          const std::uint64_t largest = (q - 1) >> facts.format(kind).rows()[row].width.dropped_bits;
          Frame altered = tests::with_packed(view, {1, row, i}, largest);
          tests::reseal(altered);
          CHECK(CiphertextView::parse(altered, kind).layout == view.layout);
          altered = tests::with_packed(view, {1, row, i}, largest + 1);
          tests::reseal(altered);
          CHECK_THROWS(CiphertextView::parse(altered, kind), ErrorCode::kWireFormat);
          CHECK(CiphertextView::parse_head(altered, kind).layout == view.layout);
        }
      }
    }
  }
}

TEST(a_total_with_something_behind_its_last_value_is_not_opened) {
  const KeyPair& keys = key_pair(kExact);
  const Frame total = tests::total_of(keys, {batch_of(keys, 1.0)});
  const FrameOffsets at(tests::facts_of(keys));
  CHECK_THROWS(tests::open(keys, with_field(total, at.value_count, std::uint64_t{kCount - 1})),
               ErrorCode::kWireFormat);
  // More values than were encrypted are zeros.
  const auto opened = tests::open(keys, with_field(total, at.value_count, std::uint64_t{kCount + 1}));
  CHECK(opened.values.back() == 0.0 && opened.values.front() == 1.0);
}

TEST(tampered_ciphertexts_are_noticed_or_open_to_other_sums) {
  std::mt19937_64 generator(132);
  const KeyPair& keys = key_pair(kExact);
  const FrameOffsets at(tests::facts_of(keys));
  const Frame total = tests::total_of(keys, {batch_of(keys, 1.0)});
  const Values right = tests::open(keys, total).values;
  const std::size_t half = tests::facts_of(keys).format(FrameKind::kCkksTotal).bytes() / 2;
  int noticed = 0;
  for (int i = 0; i < 200; ++i) {
    // A residue of c1 that changes by a power of two moves every coefficient by so much times s.
    Frame altered = total;
    const std::size_t offset = at.payload(1) + half + generator() % half;
    altered[offset] = static_cast<std::uint8_t>(altered[offset] ^ (1U << generator() % 8));
    tests::reseal(altered);
    try {
      // The low bits of a residue are within the noise, which is rounded away, and the next ones change sums
      // that stay in range: only the highest ones can be noticed.
      CHECK(tests::open(keys, altered).values.size() == right.size());
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kWireFormat);
      ++noticed;
    }
  }
  CHECK(noticed > 0 && noticed < 200);
  // Random residues are uniform: that all 2048 coefficients are in range by chance is out of the question.
  Frame random = total;
  for (std::size_t i = at.payload(1); i + 4 < random.size(); i += 4)
    random[i] = static_cast<std::uint8_t>(generator());
  tests::reseal(random);
  CHECK_THROWS(tests::open(keys, random), ErrorCode::kWireFormat);
}

}  // namespace ckks_aggregator_tests
