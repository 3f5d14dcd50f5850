// Parsers refuse whatever was altered in a frame of key-additive encryption, behind a right checksum too.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "ring/bit_packing.h"
#include "tests/check.h"
#include "tests/enrolled/frame_samples.h"
#include "tests/kahe/kahe_cases.h"
#include "tests/packed/damaged_frames.h"

namespace kahe_frames_tests {

using namespace shieldfl;
using namespace shieldfl::kahe;
using tests::check_refused;
using tests::Frame;
using tests::frame_of;
using tests::KaheOffsets;
using tests::kKeyIdOffset;
using tests::kParameterIdOffset;
using tests::Sample;
using tests::with_field;
using tests::with_parameter_id;

namespace {

constexpr std::uint32_t kClients = 5;

struct Frames : tests::FrameSamples<tests::KaheTypes> {
  explicit Frames(std::uint32_t degree) : FrameSamples({kClients, 24, 20, degree}) {}

  [[nodiscard]] KaheOffsets at() const { return KaheOffsets(facts()); }
};

// A public key whose ids are those of its contents.
Frame with_ids(Frame frame, const ParameterFacts& facts) {
  frame = with_parameter_id(std::move(frame), facts);
  const std::size_t size = ParameterFacts::encoded_bytes(facts.primes.size());
  Frame named(frame.begin() + kParameterIdOffset, frame.begin() + kKeyIdOffset);
  named.insert(named.end(), frame.begin() + static_cast<std::ptrdiff_t>(kFrameHeaderBytes + size),
               frame.end() - kFrameTrailerBytes);
  return with_field(std::move(frame), kKeyIdOffset, digest(named));
}

}  // namespace

TEST(frames_of_every_kind_are_read_as_they_were_written) {
  for (const std::uint32_t degree : {2048U, 4096U, 8192U}) {
    const Frames frames(degree);
    for (const Sample& sample : frames.samples()) sample.parse(sample.frame);
    const auto key = PublicKey::from_frame(frames.session.key->to_frame());
    CHECK(key->id() == frames.session.key->id() && key->to_frame() == frames.session.key->to_frame());
    CHECK(std::ranges::equal(key->polynomial(1), frames.session.key->polynomial(1)));
    CHECK(SumRequest::from_frame(frames.request).to_frame() == frames.request);
    const SumKey sum_key = SumKey::from_frame(frames.sum_key);
    CHECK(frame_of(sum_key) == frames.sum_key);
    CHECK(!tests::open(frames.session, frames.total, sum_key).values.empty());
    const auto view = CiphertextView::parse(frames.total, FrameKind::kKaheTotal);
    CHECK(view.head.layout.round == 4 && view.head.purpose == tests::kUpdate && view.head.part == 0);
    CHECK(view.head.participants.size() == 3 && view.head.participants[2].client == 4);
  }
}

TEST(no_frame_is_read_that_was_cut_or_lengthened_or_is_another_kind) {
  const Frames frames(4096);
  const auto samples = frames.samples();
  for (const Sample& sample : samples) {
    const std::size_t size = sample.frame.size();
    // Every length around the head and the end, and some between.
    for (std::size_t cut = 0; cut < size; cut += cut < 400 || size - cut < 200 ? 1 : 97) {
      Frame frame(sample.frame.begin(), sample.frame.begin() + static_cast<std::ptrdiff_t>(cut));
      check_refused(sample, frame);
      tests::reseal(frame);
      check_refused(sample, frame);
    }
    for (const std::size_t more : {1, 4, 8, 20, 4096}) {
      Frame frame = sample.frame;
      frame.resize(size + more);
      check_refused(sample, frame);
      tests::reseal(frame);
      check_refused(sample, frame);
    }
    for (const Sample& other : samples) {
      if (other.kind != sample.kind) check_refused(sample, other.frame);
    }
  }
}

TEST(no_frame_is_read_with_a_bit_that_was_flipped) {
  const Frames frames(2048);
  for (const Sample& sample : frames.samples()) {
    for (std::size_t at = 0; at < sample.frame.size(); at += at < 400 ? 1 : 61) {
      Frame frame = sample.frame;
      frame[at] ^= static_cast<std::uint8_t>(1U << at % 8);
      check_refused(sample, frame);
    }
  }
}

TEST(parameters_out_of_range_are_refused) {
  const Frames frames(4096);
  // value_bits, fraction_bits, fields, dropped bits, prime count, guard bits omitted of three, reserved,
  // max_clients, degree, a prime
  const std::vector<std::pair<std::size_t, int>> bad = {
      {0, 0}, {0, 1},   {0, 41}, {1, 53}, {2, 0},  {4, 17},  {5, 0},  {5, 5},  {5, 255},  {6, 4}, {6, 255},
      {7, 1}, {10, 17}, {11, 1}, {12, 1}, {13, 0}, {13, 64}, {15, 1}, {16, 3}, {23, 255}, {31, 4}};
  for (const Sample& sample : frames.samples()) {
    if (sample.kind == FrameKind::kKaheSumKey) continue;  // it states its degree and clients alone
    for (const auto& [offset, value] : bad) {
      Frame frame = sample.frame;
      CHECK(frame[frames.at().facts + offset] != value);
      frame[frames.at().facts + offset] = static_cast<std::uint8_t>(value);
      check_refused(sample, with_parameter_id(frame, frames.facts()));
    }
    for (const std::size_t prime : {16, 24}) {
      for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
        const Frame frame = with_field(sample.frame, frames.at().facts + prime, value);
        check_refused(sample, with_parameter_id(frame, frames.facts()));
      }
    }
    // In range, and not what the header names.
    for (std::size_t offset = 0; offset < ParameterFacts::encoded_bytes(2); ++offset) {
      Frame frame = sample.frame;
      frame[frames.at().facts + offset] ^= 1;
      tests::reseal(frame);
      check_refused(sample, frame);
    }
    check_refused(sample, with_field(sample.frame, kParameterIdOffset, Id{1}));
  }
}

TEST(a_public_key_s_ids_are_those_of_its_contents) {
  const Frames frames(2048);
  const Sample sample = frames.samples()[0];
  const std::size_t manifest = frames.at().round;
  CHECK(with_ids(sample.frame, frames.facts()) == sample.frame);
  check_refused(sample, with_field(sample.frame, kKeyIdOffset, Id{1}));
  for (const std::size_t at : {manifest, manifest + 31, manifest + 32, manifest + 47, manifest + 48}) {
    Frame frame = sample.frame;
    frame[at] ^= 1;
    tests::reseal(frame);
    check_refused(sample, frame);
    CHECK(PublicKey::from_frame(with_ids(frame, frames.facts()))->id() != frames.session.key->id());
  }
  // Well-formed, and not what settings give: scale, dropped bits, number of fields.
  for (const std::size_t offset : {2, 3, 4}) {
    Frame frame = sample.frame;
    ++frame[frames.at().facts + offset];
    check_refused(sample, with_ids(frame, frames.facts()), ErrorCode::kParameter);
  }
}

TEST(a_head_states_what_sums_have) {
  const Frames frames(2048);
  const KaheOffsets at = frames.at();
  for (const Sample& sample : frames.samples_of_a_sum()) {
    const auto refuses = [&](std::size_t offset, auto value) {
      const Frame frame = with_field(sample.frame, offset, value);
      CHECK(frame != sample.frame);
      check_refused(sample, frame);
    };
    constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint64_t count : {scheme::kMaxValueCount + 1, std::uint64_t{1} << 61, kMost}) {
      refuses(at.value_count, count);
    }
    for (const std::uint32_t flags : {2U, 3U, 1U << 31}) refuses(at.flags, flags);
    for (const std::uint32_t clients : {0U, 2U, 4U, kClients + 1, scheme::kMaxClients, 1U << 31, ~0U}) {
      refuses(at.clients, clients);
    }
    if (sample.kind == FrameKind::kKaheBatch) continue;
    // Of clients 0, 2 and 4: the same one twice, and out of order.
    for (const std::uint32_t client : {2U, 3U, ~0U}) refuses(at.client(0), client);
    for (const std::uint32_t client : {0U, 4U, 5U}) refuses(at.client(1), client);
    for (const std::uint32_t client : {0U, 2U}) refuses(at.client(2), client);
    // One frame id of two clients.
    refuses(at.frame_id(2), tests::field_at<Id>(sample.frame, at.frame_id(0)));
  }
}

TEST(a_batch_and_a_total_have_as_many_ciphertexts_as_their_values_take) {
  const Frames frames(2048);
  const std::uint64_t block = frames.facts().values_per_block();
  for (const Sample& sample : frames.samples_of_a_sum()) {
    if (sample.kind == FrameKind::kKaheSumRequest) continue;
    for (const std::uint64_t count : {std::uint64_t{0}, block, 2 * block + 1, scheme::kMaxValueCount}) {
      check_refused(sample, with_field(sample.frame, frames.at().value_count, count));
    }
  }
}

TEST(digits_above_their_primes_are_refused) {
  for (const std::uint32_t degree : {2048U, 8192U}) {
    const Frames frames(degree);
    for (const Sample& sample : frames.samples_of_a_sum()) {
      if (sample.kind == FrameKind::kKaheSumRequest) continue;
      const auto view = CiphertextView::parse(sample.frame, sample.kind);
      for (std::size_t row = 0; row < view.format.rows().size(); ++row) {
        const packed::RowFormat& format = view.format.rows()[row];
        const std::uint64_t largest = (format.modulus - 1) >> format.width.dropped_bits;
        for (const std::size_t index : {std::size_t{0}, std::size_t{degree - 1}}) {
          Frame frame = tests::with_packed(view, {1, row, index}, largest);
          tests::reseal(frame);
          sample.parse(frame);
          frame = tests::with_packed(view, {1, row, index}, largest + 1);
          tests::reseal(frame);
          check_refused(sample, frame);
        }
      }
    }
  }
}

TEST(a_sum_key_states_what_sums_have) {
  const Frames frames(2048);
  const Sample sample = frames.samples()[4];
  constexpr std::size_t kClientsAt = kFrameHeaderBytes;
  constexpr std::size_t kDegreeAt = kClientsAt + 4;
  constexpr std::size_t kCountAt = kDegreeAt + 4;
  constexpr std::size_t kCoefficientsAt = kCountAt + 8 + 2 * sizeof(Digest);
  // Three clients: their sums plus 126 are at most 252, a byte each.
  for (const std::uint32_t clients : {0U, 1U, 4U, scheme::kMaxClients, scheme::kMaxClients + 1, ~0U}) {
    check_refused(sample, with_field(sample.frame, kClientsAt, clients));
  }
  for (const std::uint32_t degree : {0U, 1U, 7U, 2047U, 2049U, 4096U, 1U << 31, ~0U}) {
    check_refused(sample, with_field(sample.frame, kDegreeAt, degree));
  }
  const auto count = tests::field_at<std::uint64_t>(sample.frame, kCountAt);
  CHECK(count == frames.facts().degree);
  for (const std::uint64_t other : {std::uint64_t{0}, count - 1, count + 1, count + 8, 2 * count, count << 20,
                                    count << 50, std::uint64_t{1} << 61, std::uint64_t{1} << 63}) {
    check_refused(sample, with_field(sample.frame, kCountAt, other));
  }
  for (const std::size_t at : {kCoefficientsAt, sample.frame.size() - kFrameTrailerBytes - 1}) {
    (void)SumKey::from_frame(with_field(sample.frame, at, std::uint8_t{252}));
    for (const std::uint8_t above : {std::uint8_t{253}, std::uint8_t{255}})
      check_refused(sample, with_field(sample.frame, at, above));
  }
}

TEST(a_sum_key_opens_nothing_with_a_field_that_was_altered) {
  const Frames frames(2048);
  const auto opens = [&](const Frame& frame) {
    return tests::open(frames.session, frames.total, SumKey::from_frame(frame));
  };
  (void)opens(frames.sum_key);
  constexpr std::size_t kDegreeAt = kFrameHeaderBytes + 4;
  constexpr std::size_t kSumAt = kDegreeAt + 4 + 8;
  // The header's ids, the list's digest, the total's.
  for (const std::size_t at : {kKeyIdOffset, kSumAt, kSumAt + 31, kSumAt + 32, kSumAt + 63}) {
    Frame frame = frames.sum_key;
    frame[at] ^= 1;
    tests::reseal(frame);
    CHECK_THROWS(opens(frame), ErrorCode::kKeyMismatch);
  }
  CHECK_THROWS(opens(with_field(frames.sum_key, kParameterIdOffset, Id{1})), ErrorCode::kParameter);
  // Of fewer clients, whose coefficients take as many bits; another ring's; a coefficient one higher or
  // lower.
  CHECK_THROWS(opens(with_field(frames.sum_key, kFrameHeaderBytes, 2U)), ErrorCode::kWireFormat);
  CHECK_THROWS(opens(with_field(frames.sum_key, kDegreeAt, 1024U)), ErrorCode::kWireFormat);
  for (const std::size_t at : {kSumAt + 64, frames.sum_key.size() - kFrameTrailerBytes - 1}) {
    Frame frame = frames.sum_key;
    frame[at] ^= 1;
    tests::reseal(frame);
    CHECK_THROWS(opens(frame), ErrorCode::kWireFormat);
  }
}

TEST(a_sum_key_of_more_clients_than_the_total_has_opens_nothing) {
  const Frames frames(2048);
  // The same digests and as many coefficients, in the range that a million clients' sums have.
  constexpr std::uint32_t kMany = scheme::kMaxClients;
  constexpr std::size_t kFieldsEnd = kFrameHeaderBytes + 4 + 4 + 8 + 2 * sizeof(Digest);
  const unsigned bits = static_cast<unsigned>(std::bit_width(2 * std::uint64_t{42} * kMany));
  Frame frame(frames.sum_key.begin(), frames.sum_key.begin() + kFieldsEnd);
  frame.resize(kFieldsEnd + ring::packed_bytes(frames.facts().degree, bits) + kFrameTrailerBytes);
  frame = with_field(std::move(frame), kFrameHeaderBytes, kMany);
  const SumKey sum_key = SumKey::from_frame(frame);
  CHECK(sum_key.coefficients()[0] == -42 * static_cast<std::int32_t>(kMany));
  CHECK_THROWS(tests::open(frames.session, frames.total, sum_key), ErrorCode::kWireFormat);
}

}  // namespace kahe_frames_tests
