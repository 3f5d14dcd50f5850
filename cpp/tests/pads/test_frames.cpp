// Parsers refuse whatever was altered in a frame of one-time pads, behind a right checksum too.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tests/check.h"
#include "tests/enrolled/frame_samples.h"

namespace pads_frames_tests {

using namespace shieldfl;
using namespace shieldfl::pads;
using tests::check_refused;
using tests::Frame;
using tests::frame_of;
using tests::kParameterIdOffset;
using tests::Sample;
using tests::SumOffsets;
using tests::with_field;
using tests::with_parameter_id;

namespace {

constexpr std::uint32_t kClients = 5;

struct Frames : tests::FrameSamples<tests::PadsTypes> {
  Frames() : FrameSamples({kClients, 24, 20}) {}
};

}  // namespace

TEST(frames_of_every_kind_are_read_as_they_were_written) {
  const Frames frames;
  for (const Sample& sample : frames.samples()) sample.parse(sample.frame);
  const auto key = PublicKey::from_frame(frames.session.key->to_frame());
  CHECK(key->id() == frames.session.key->id() && key->to_frame() == frames.session.key->to_frame());
  CHECK(SumRequest::from_frame(frames.request).to_frame() == frames.request);
  CHECK(frame_of(SumKey::from_frame(frames.sum_key)) == frames.sum_key);
  const auto view = CiphertextView::parse(frames.total, FrameKind::kPadsTotal);
  CHECK(view.head.layout.round == 4 && view.head.purpose == tests::kUpdate && view.head.part == 0);
  CHECK(view.head.participants.size() == 3 && view.head.participants[2].client == 4);
}

TEST(no_frame_is_read_that_was_cut_lengthened_flipped_or_is_another_kind) {
  const Frames frames;
  const auto samples = frames.samples();
  for (const Sample& sample : samples) {
    const std::size_t size = sample.frame.size();
    for (std::size_t cut = 0; cut < size; cut += cut < 400 || size - cut < 200 ? 1 : 97) {
      Frame frame(sample.frame.begin(), sample.frame.begin() + static_cast<std::ptrdiff_t>(cut));
      check_refused(sample, frame);
      tests::reseal(frame);
      check_refused(sample, frame);
      frame = sample.frame;
      frame[cut] ^= static_cast<std::uint8_t>(1U << cut % 8);
      check_refused(sample, frame);
    }
    for (const std::size_t more : {1, 4, 20, 3840}) {
      Frame frame = sample.frame;
      frame.resize(size + more);
      tests::reseal(frame);
      check_refused(sample, frame);
    }
    for (const Sample& other : samples) {
      if (other.kind != sample.kind) check_refused(sample, other.frame);
    }
  }
}

TEST(parameters_out_of_range_are_refused) {
  const Frames frames;
  // value_bits, fraction_bits, guard bits omitted of three, reserved, words of a block, max_clients
  const std::vector<std::pair<std::size_t, int>> bad = {{0, 0}, {0, 1}, {0, 41}, {1, 53}, {2, 4}, {2, 255},
                                                        {3, 1}, {4, 1}, {5, 5},  {7, 1},  {8, 0}, {11, 1}};
  for (const Sample& sample : frames.samples()) {
    if (sample.kind == FrameKind::kPadsSumKey) continue;  // it states its bits and clients alone
    for (const auto& [offset, value] : bad) {
      Frame frame = sample.frame;
      CHECK(frame[kFrameHeaderBytes + offset] != value);
      frame[kFrameHeaderBytes + offset] = static_cast<std::uint8_t>(value);
      check_refused(sample, with_parameter_id(frame, frames.facts()));
    }
    check_refused(sample, with_field(sample.frame, kParameterIdOffset, Id{1}));
  }
}

TEST(a_head_states_what_sums_have) {
  const Frames frames;
  const SumOffsets at(ParameterFacts::kEncodedBytes);
  for (const Sample& sample : frames.samples()) {
    if (sample.kind == FrameKind::kPadsPublicKey || sample.kind == FrameKind::kPadsSumKey) continue;
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
    for (const std::uint32_t clients : {0U, 2U, 4U, kClients + 1, scheme::kMaxClients, ~0U}) {
      refuses(at.clients, clients);
    }
    if (sample.kind == FrameKind::kPadsSumRequest) continue;
    const std::uint64_t block = frames.facts().values_per_block();
    for (const std::uint64_t count : {std::uint64_t{0}, block, 2 * block + 1, scheme::kMaxValueCount}) {
      refuses(at.value_count, count);
    }
  }
}

TEST(a_sum_key_states_what_sums_have_and_opens_its_own_total_alone) {
  const Frames frames;
  const Sample sample = frames.samples()[4];
  constexpr std::size_t kClientsAt = kFrameHeaderBytes;
  constexpr std::size_t kBitsAt = kClientsAt + 4;
  constexpr std::size_t kCountAt = kBitsAt + 4;
  constexpr std::size_t kSumAt = kCountAt + 8;
  constexpr std::size_t kWordsAt = kSumAt + 2 * sizeof(Digest);
  for (const std::uint32_t clients : {0U, scheme::kMaxClients + 1, ~0U}) {
    check_refused(sample, with_field(sample.frame, kClientsAt, clients));
  }
  for (const std::uint32_t bits : {0U, 1U, 26U, 28U, 55U, 64U, ~0U}) {
    check_refused(sample, with_field(sample.frame, kBitsAt, bits));
  }
  const auto count = tests::field_at<std::uint64_t>(sample.frame, kCountAt);
  CHECK(count == 2 * kBlockWords);
  for (const std::uint64_t other :
       {std::uint64_t{0}, count - 1, count + 1, 2 * count, count << 20, std::uint64_t{1} << 63}) {
    check_refused(sample, with_field(sample.frame, kCountAt, other));
  }
  const auto opens = [&](const Frame& frame) {
    return tests::open(frames.session, frames.total, SumKey::from_frame(frame));
  };
  CHECK(opens(sample.frame).values.size() == frames.facts().values_per_block() + 3);
  CHECK_THROWS(opens(with_field(sample.frame, kClientsAt, 2U)), ErrorCode::kWireFormat);
  CHECK_THROWS(opens(with_field(sample.frame, kSumAt, Id{1})), ErrorCode::kKeyMismatch);
  CHECK_THROWS(opens(with_field(sample.frame, kSumAt + 32, Id{1})), ErrorCode::kKeyMismatch);
  CHECK_THROWS(opens(with_field(sample.frame, kParameterIdOffset, Id{1})), ErrorCode::kParameter);
  CHECK_THROWS(opens(with_field(sample.frame, kParameterIdOffset + 16, Id{1})), ErrorCode::kKeyMismatch);
  // Words that carry zero, those at the end of each block.
  const std::size_t block = kBlockWords * frames.facts().field_bits() / 8;
  for (const std::size_t at : {kWordsAt + block - 1, kWordsAt + 2 * block - 1}) {
    Frame frame = sample.frame;
    frame[at] ^= 1;
    tests::reseal(frame);
    CHECK_THROWS(opens(frame), ErrorCode::kWireFormat);
  }
}

TEST(every_block_carries_ninety_bits_of_zeros) {
  for (const std::uint32_t clients : {1U, 3U, 64U, 1U << 14}) {
    for (const unsigned bits : {2U, 8U, 24U, 40U}) {
      const auto parameters = Parameters::derive({clients, bits, 0});
      const ParameterFacts& facts = parameters->facts();
      CHECK(facts.zeros_per_block() * facts.field_bits() >= kZeroBits);
      CHECK((facts.zeros_per_block() - 1) * facts.field_bits() < kZeroBits);
      CHECK(Parameters::from_facts(facts)->id() == parameters->id());
    }
  }
  CHECK(Parameters::derive({64, 24, 20})->bytes_per_value() < 3.77);
  CHECK(Parameters::derive({64, 24, 20, 26})->facts().field_bits() == 26);
  CHECK(Parameters::derive({64, 24, 20, 26})->bytes_per_value() < 3.27);
  CHECK(Parameters::derive({64, 24, 20, 30})->id() == Parameters::derive({64, 24, 20})->id());
  CHECK_THROWS(Parameters::derive({1U << 15, 40, 0}), ErrorCode::kParameter);
}

}  // namespace pads_frames_tests
