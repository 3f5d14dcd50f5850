#include <cstdint>
#include <string>
#include <vector>

#include "paillier/big_endian.h"
#include "paillier/ciphertext.h"
#include "tests/check.h"
#include "tests/paillier/paillier_batches.h"

namespace paillier_ciphertext_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using tests::Frame;
using tests::key_pair;
using tests::PaillierOffsets;
using tests::Values;
using tests::with_field;

namespace {

// One value in a ciphertext, six of which the middle two are left out.
UnionOrder order_of_all() {
  const auto all = mask::Bitset::full(6);
  const std::vector<const mask::Bitset*> masks = {&all};
  return UnionOrder::from_masks(masks);
}

Frame batch_with_gap() {
  SystemSeedSource seeds;
  const PublicKey& key = *key_pair(tests::kSingleParameters).public_key;
  const auto outer = mask::Bitset::from_indices(std::vector<std::int64_t>{0, 1, 4, 5}, 6);
  EncryptOptions options;
  options.round = 7;
  return tests::encrypt_in_union(key, Values(6, 1.5), order_of_all(), outer, seeds, options);
}

void check_refused(const Frame& frame, FrameKind kind = FrameKind::kPaillierBatch) {
  CHECK_THROWS(CiphertextView::parse(frame, kind), ErrorCode::kWireFormat);
}

}  // namespace

TEST(a_paillier_batch_says_what_it_holds) {
  const PublicKey& key = *key_pair(tests::kSingleParameters).public_key;
  const Frame frame = batch_with_gap();
  const CiphertextView view = tests::batch_view(frame);
  CHECK(view.kind == FrameKind::kPaillierBatch && view.parameters == key.parameters());
  CHECK(view.layout.parameter_id == key.parameters().id() && view.layout.key_id == key.id());
  CHECK(view.layout.round == 7 && view.layout.value_count == 6 && !view.layout.weighted);
  CHECK(view.frame_ids.size() == 1 && view.total_weight == 1);
  CHECK(view.present && view.present->size() == 6 && view.present_count() == 4);
  for (const std::uint64_t block : {0U, 1U, 4U, 5U}) CHECK(view.present->test(block));
  CHECK(view.payload.size() == 4 * key.parameters().ciphertext_bytes());
  CHECK(ciphertext_frame_bytes(view.parameters, view.layout, 1, &*view.present) == frame.size());
}

TEST(residues_travel_with_their_highest_byte_first) {
  const Frame frame = batch_with_gap();
  const CiphertextView view = tests::batch_view(frame);
  const std::size_t words = view.parameters.ciphertext_words();
  const std::size_t bytes = view.parameters.ciphertext_bytes();
  std::vector<std::uint64_t> residues(3 * words);
  read_residues(view, 1, 3, residues);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto expected = tests::from_bytes(view.payload.subspan((i + 1) * bytes, bytes));
    CHECK(BigInteger::from_words(std::span(residues).subspan(i * words, words)) == expected);
  }
  Frame written(3 * bytes);
  write_residues(view.parameters, residues, written);
  CHECK(written == Frame(view.payload.begin() + static_cast<std::ptrdiff_t>(bytes), view.payload.end()));
}

TEST(every_truncation_and_every_flipped_byte_of_a_paillier_frame_is_refused) {
  const PublicKey& key = *key_pair(tests::kSingleParameters).public_key;
  const Frame batch = batch_with_gap();
  const UnionOrder order = order_of_all();
  Aggregator aggregator(key_pair(tests::kSingleParameters).public_key, std::nullopt, 1, &order);
  aggregator.add(batch);
  const Frame total = tests::total_of(aggregator);
  for (const FrameKind kind : {FrameKind::kPaillierBatch, FrameKind::kPaillierTotal}) {
    const Frame& frame = kind == FrameKind::kPaillierBatch ? batch : total;
    CHECK(CiphertextView::parse(frame, kind).layout.key_id == key.id());
    for (std::size_t size = 0; size < frame.size(); ++size) {
      Frame cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
      check_refused(cut, kind);
      tests::reseal(cut);
      check_refused(cut, kind);
    }
    for (std::size_t at = 0; at < frame.size(); ++at) {
      Frame altered = frame;
      altered[at] = static_cast<std::uint8_t>(altered[at] ^ (1U << (at % 8)));
      check_refused(altered, kind);
    }
    Frame longer = frame;
    longer.insert(longer.end(), key.parameters().ciphertext_bytes(), std::uint8_t{0});
    tests::reseal(longer);
    check_refused(longer, kind);
  }
}

TEST(fields_that_no_paillier_frame_has_are_refused) {
  SystemSeedSource seeds;
  using At = PaillierOffsets;
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  const Frame batch = tests::encrypt(*keys.public_key, Values(100, 1.0), seeds);
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1} << 31, scheme::kMaxValueCount,
                                    scheme::kMaxValueCount + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    check_refused(with_field(batch, At::kValueCount, count));
  }
  for (const std::uint32_t clients : {0U, 2U, 1U << 31, ~0U}) {
    check_refused(with_field(batch, At::kClients, clients));
  }
  for (const std::uint64_t weight : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    check_refused(with_field(batch, At::kTotalWeight, weight));
  }
  // Flags that do not exist, a bitmap that is not there, and one beside an encrypted weight.
  for (const std::uint32_t flags : {2U, 3U, 4U, 1U << 31})
    check_refused(with_field(batch, At::kFlags, flags));
  for (std::size_t at = At::kParameters; at < At::kRound; ++at) {
    check_refused(with_field(batch, at, static_cast<std::uint8_t>(batch[at] ^ 1)));
  }

  Aggregator aggregator(keys.public_key, std::nullopt, 1);
  for (int i = 0; i < 3; ++i) aggregator.add(tests::encrypt(*keys.public_key, Values(100, 1.0), seeds), 10);
  const Frame total = tests::total_of(aggregator);
  CHECK(tests::total_view(total).total_weight == 30 && tests::total_view(total).frame_ids.size() == 3);
  for (const std::uint64_t weight :
       {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{31}, ~std::uint64_t{0}}) {
    check_refused(with_field(total, At::kTotalWeight, weight), FrameKind::kPaillierTotal);
  }
  for (const std::uint32_t clients : {0U, 1U, 2U, 4U, 5U, ~0U}) {
    check_refused(with_field(total, At::kClients, clients), FrameKind::kPaillierTotal);
  }
  // A total leaves nothing out, and beside encrypted weights there are no others.
  for (const std::uint32_t flags : {1U, 2U}) {
    check_refused(with_field(total, At::kFlags, flags), FrameKind::kPaillierTotal);
  }
  Frame duplicated = total;
  std::copy_n(duplicated.begin() + At::kFrameIds, 16, duplicated.begin() + At::kFrameIds + 16);
  tests::reseal(duplicated);
  check_refused(duplicated, FrameKind::kPaillierTotal);
  Frame unsorted = total;
  std::swap_ranges(unsorted.begin() + At::kFrameIds, unsorted.begin() + At::kFrameIds + 16,
                   unsorted.begin() + At::kFrameIds + 16);
  tests::reseal(unsorted);
  check_refused(unsorted, FrameKind::kPaillierTotal);
}

TEST(a_bitmap_of_ciphertexts_is_the_only_one_for_them) {
  const Frame frame = batch_with_gap();
  constexpr std::size_t kBitmap = PaillierOffsets::payload(1);
  CHECK(frame[kBitmap] == 0b110011);
  // A bit past the last ciphertext, another number of ciphertexts than in the payload, and none that is left
  // out.
  for (const unsigned bitmap : {0b1110011U, 0b10110011U, 0b100011U, 0b111011U}) {
    check_refused(with_field(frame, kBitmap, static_cast<std::uint8_t>(bitmap)));
  }
  Frame full = frame;
  full.insert(full.end() - kFrameTrailerBytes, std::size_t{2} * 512, std::uint8_t{1});
  full[kBitmap] = 0b111111;
  tests::reseal(full);
  check_refused(full);
  // The frame does not get longer by stating more values.
  for (const std::uint64_t count : {std::uint64_t{1} << 20, std::uint64_t{1} << 31, scheme::kMaxValueCount}) {
    check_refused(with_field(frame, PaillierOffsets::kValueCount, count));
  }
}

TEST(only_residues_that_have_an_inverse_pass) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(tests::kSingleParameters);
  const BigInteger n = tests::modulus_of(*keys.public_key);
  const auto& factors = tests::insecure_factors(2048);
  const auto p = BigInteger::from_words(std::span(factors).first(factors.size() / 2));
  const BigInteger one(1);
  // More than an engine takes at once, in several threads.
  const Frame batch = tests::encrypt(*keys.public_key, Values(150, 0.5), seeds);
  const CiphertextView view = tests::batch_view(batch);
  check_residues(view, *keys.public_key, 2);
  for (const BigInteger& unit : {one, n - one, n + one, n * n - one, p + one}) {
    const Frame altered = tests::with_residue(batch, view, 77, unit);
    check_residues(tests::batch_view(altered), *keys.public_key, 2);
  }
  const BigInteger largest = BigInteger(0) + power_modulo(BigInteger(2), BigInteger(4096), n * n * n) - one;
  for (const BigInteger& none : {BigInteger(0), n, n + n, n * BigInteger(12345), n * (n - one), p, n * n - p,
                                 n * n, n * n + one, largest}) {
    for (const std::size_t place : {0U, 1U, 64U, 77U, 149U}) {
      const Frame altered = tests::with_residue(batch, view, place, none);
      for (const std::size_t threads : {1U, 2U}) {
        std::string message;
        try {
          check_residues(tests::batch_view(altered), *keys.public_key, threads);
        } catch (const Error& error) {
          CHECK(error.code() == ErrorCode::kWireFormat);
          message = error.what();
        }
        CHECK(message.find("ciphertext " + std::to_string(place) + " ") != std::string::npos);
      }
    }
  }
}

TEST(residues_are_checked_under_the_key_that_made_them) {
  const Frame frame = batch_with_gap();
  CiphertextView view = tests::batch_view(frame);
  const PublicKey& dense = *key_pair(tests::kDenseParameters).public_key;
  const Parameters longer =
      tests::altered(tests::kSingleParameters, [](auto& facts) { facts.key_bits = 3072; });
  // Also a frame that states the other key's id over ciphertexts of another length.
  for (const PublicKey* const other : {&dense, key_pair(longer).public_key.get()}) {
    CHECK_THROWS((check_residues(view, *other, 1), 0), ErrorCode::kParameter);
    view.layout.key_id = other->id();
    CHECK_THROWS((check_residues(view, *other, 1), 0), ErrorCode::kParameter);
  }
  CHECK_THROWS((check_residues(view, *key_pair(tests::kSingleParameters).public_key, 1), 0),
               ErrorCode::kKeyMismatch);
}

TEST(numbers_and_their_bytes_are_of_one_length) {
  std::vector<std::uint64_t> words(2);
  for (const std::size_t length : {0U, 8U, 15U, 17U, 24U}) {
    std::vector<std::uint8_t> bytes(length);
    CHECK_THROWS((to_big_endian(words, bytes), 0), ErrorCode::kInternal);
    CHECK_THROWS((from_big_endian(bytes, words), 0), ErrorCode::kInternal);
  }
}

}  // namespace paillier_ciphertext_tests
