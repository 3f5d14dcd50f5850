#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/crc32c.h"
#include "common/digest.h"
#include "common/wire.h"
#include "tests/altered_frames.h"
#include "tests/check.h"

namespace common_wire_tests {

using namespace shieldfl;
using tests::Frame;
using tests::reseal;
using tests::with_field;

namespace {

Id id_of(std::uint8_t first) {
  Id id;
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::uint8_t>(first + i);
  return id;
}

constexpr std::size_t kSampleBody = 1 + 2 + 4 + 8 + 8 + 16 + 3 + 2;

// A body of every type that bodies hold.
void put_sample(FrameWriter& writer) {
  const std::vector<std::uint8_t> tail = {9, 8, 7};
  writer.put(std::uint8_t{0xab});
  writer.put(std::uint16_t{0x1234});
  writer.put(std::uint32_t{0xdeadbeef});
  writer.put(std::uint64_t{0x0102030405060708});
  writer.put(-2.5);
  writer.put_bytes(id_of(100));
  writer.put_bytes(tail);
  writer.put_bytes({});
  const auto place = writer.reserve(2);
  place[0] = 5;
  place[1] = 6;
}

const FrameHeader kSampleHeader = {FrameKind::kCkksBatch, id_of(1), id_of(50)};

Frame sample_frame() {
  FrameWriter writer(kSampleHeader, kSampleBody);
  put_sample(writer);
  return writer.finish();
}

}  // namespace

TEST(digests_tell_padding_from_data) {
  const std::vector<std::uint8_t> zeros(24, 0);
  for (std::size_t a = 0; a <= zeros.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      CHECK(digest(std::span(zeros).first(a)) != digest(std::span(zeros).first(b)));
    }
  }
  CHECK(digest(zeros) == digest(zeros));
}

TEST(a_frame_reads_back_what_was_written) {
  const Frame frame = sample_frame();
  CHECK(frame.size() == kFrameHeaderBytes + 44 + kFrameTrailerBytes);
  FrameReader reader(frame, FrameKind::kCkksBatch);
  CHECK(reader.header().kind == FrameKind::kCkksBatch);
  CHECK(reader.header().parameter_id == id_of(1) && reader.header().key_id == id_of(50));
  CHECK(reader.remaining() == 44);
  CHECK(reader.take<std::uint8_t>() == 0xab);
  CHECK(reader.take<std::uint16_t>() == 0x1234);
  CHECK(reader.take<std::uint32_t>() == 0xdeadbeef);
  CHECK(reader.take<std::uint64_t>() == 0x0102030405060708);
  CHECK(reader.take<double>() == -2.5);
  CHECK(reader.take_id() == id_of(100));
  CHECK_THROWS((reader.expect_end(), 0), ErrorCode::kWireFormat);
  CHECK(reader.take_bytes(3)[2] == 7);
  CHECK_THROWS(reader.take<std::uint32_t>(), ErrorCode::kWireFormat);
  CHECK_THROWS(reader.take_bytes(std::numeric_limits<std::size_t>::max()), ErrorCode::kWireFormat);
  CHECK(reader.take<std::uint16_t>() == 0x0605);
  reader.expect_end();
  CHECK_THROWS(reader.take<std::uint8_t>(), ErrorCode::kWireFormat);
}

TEST(a_frame_has_the_documented_bytes) {
  FrameWriter writer({FrameKind::kMask, id_of(16), id_of(32)}, 1);
  writer.put(std::uint8_t{0x77});
  const Frame frame = writer.finish();
  Frame expected = {'S', 'H', 'F', 'L', 2, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0};
  for (std::uint8_t i = 16; i < 48; ++i) expected.push_back(i);
  expected.push_back(0x77);
  const std::uint32_t checksum = crc32c(expected);
  for (unsigned i = 0; i < 4; ++i) expected.push_back(static_cast<std::uint8_t>(checksum >> (8 * i)));
  CHECK(frame == expected);
}

TEST(a_writer_refuses_a_body_of_another_length) {
  FrameWriter shorter({FrameKind::kMask, {}, {}}, 4);
  shorter.put(std::uint16_t{1});
  CHECK_THROWS(shorter.finish(), ErrorCode::kInternal);
  FrameWriter longer({FrameKind::kMask, {}, {}}, 4);
  longer.put(std::uint16_t{1});
  CHECK_THROWS((longer.put(std::uint32_t{1}), 0), ErrorCode::kInternal);
  CHECK_THROWS(longer.reserve(std::numeric_limits<std::size_t>::max()), ErrorCode::kInternal);
}

TEST(a_frame_is_written_into_the_memory_of_the_caller) {
  const Frame expected = sample_frame();
  CHECK(expected.size() == frame_bytes(kSampleBody));
  for (const bool known_checksum : {false, true}) {
    Frame memory(expected.size() + 2, 0xee);
    FrameWriter writer(kSampleHeader, kSampleBody, std::span(memory).subspan(1, expected.size()));
    CHECK(writer.written().size() == kFrameHeaderBytes);
    put_sample(writer);
    CHECK(writer.written().data() == memory.data() + 1);
    CHECK(writer.written().size() == kFrameHeaderBytes + kSampleBody);
    CHECK((known_checksum ? writer.finish(crc32c(writer.written())) : writer.finish()).empty());
    CHECK(std::equal(expected.begin(), expected.end(), memory.begin() + 1));
    CHECK(memory.front() == 0xee && memory.back() == 0xee);
  }
  // Memory of another length is refused before anything is written, none at all included.
  for (const std::size_t size : {std::size_t{0}, expected.size() - 1, expected.size() + 1}) {
    Frame memory(size, 0xee);
    CHECK_THROWS(FrameWriter(kSampleHeader, kSampleBody, memory), ErrorCode::kInternal);
    CHECK(memory == Frame(size, 0xee));
  }
}

TEST(a_checksum_can_be_left_to_the_caller) {
  const Frame frame = sample_frame();
  constexpr auto kLater = FrameReader::Checksum::kLeaveToCaller;
  CHECK(FrameReader::stated_checksum(frame) == crc32c(std::span(frame).first(frame.size() - 4)));
  FrameReader::check_checksum(frame);
  for (const std::size_t at : {kFrameHeaderBytes, frame.size() - 1}) {
    Frame damaged = frame;
    damaged[at] ^= 0x10;
    CHECK(FrameReader(damaged, FrameKind::kCkksBatch, kLater).header().key_id == id_of(50));
    CHECK_THROWS((FrameReader::check_checksum(damaged), 0), ErrorCode::kWireFormat);
  }
  CHECK_THROWS(FrameReader::fail_checksum(), ErrorCode::kWireFormat);
  // All else is checked as ever.
  for (std::size_t size = 0; size < frame.size(); ++size) {
    const Frame cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_THROWS(FrameReader(cut, FrameKind::kCkksBatch, kLater), ErrorCode::kWireFormat);
  }
  for (const std::size_t at : {0, 4, 6}) {
    Frame damaged = frame;
    damaged[at] ^= 0x10;
    CHECK_THROWS(FrameReader(damaged, FrameKind::kCkksBatch, kLater), ErrorCode::kWireFormat);
  }
}

TEST(every_truncation_and_extension_of_a_frame_is_refused) {
  const Frame frame = sample_frame();
  for (std::size_t size = 0; size < frame.size(); ++size) {
    // An allocation of its own, so that a read past the end is seen by the sanitizer.
    const Frame cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_THROWS(FrameReader(cut, FrameKind::kCkksBatch), ErrorCode::kWireFormat);
    CHECK(!summarise_frame(cut).problem.empty());
  }
  Frame longer = frame;
  longer.push_back(0);
  CHECK_THROWS(FrameReader(longer, FrameKind::kCkksBatch), ErrorCode::kWireFormat);
}

TEST(every_changed_byte_of_a_frame_is_refused) {
  const Frame frame = sample_frame();
  for (std::size_t i = 0; i < frame.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      Frame altered = frame;
      altered[i] = static_cast<std::uint8_t>(altered[i] ^ flip);
      CHECK_THROWS(FrameReader(altered, FrameKind::kCkksBatch), ErrorCode::kWireFormat);
      CHECK(!summarise_frame(altered).problem.empty());
    }
  }
}

TEST(header_fields_are_checked_behind_a_right_checksum) {
  const Frame frame = sample_frame();
  Frame no_magic = frame;
  no_magic[0] = 's';
  reseal(no_magic);
  CHECK_THROWS(FrameReader(no_magic, FrameKind::kCkksBatch), ErrorCode::kWireFormat);
  for (const int version : {0, 1, 3, 0x0200, 0xffff}) {
    CHECK_THROWS(
        FrameReader(with_field(frame, 4, static_cast<std::uint16_t>(version)), FrameKind::kCkksBatch),
        ErrorCode::kWireFormat);
  }
  for (const int kind : {0, 1, 2, 4, 5, 0x0300, 0xffff}) {
    CHECK_THROWS(FrameReader(with_field(frame, 6, static_cast<std::uint16_t>(kind)), FrameKind::kCkksBatch),
                 ErrorCode::kWireFormat);
  }
}

TEST(absurd_declared_lengths_are_refused) {
  const Frame frame = sample_frame();
  const auto body = tests::field_at<std::uint64_t>(frame, 8);
  for (const std::uint64_t length :
       {std::uint64_t{0}, body - 1, body + 1, std::uint64_t{1} << 31, std::uint64_t{1} << 63,
        ~std::uint64_t{0}, ~std::uint64_t{0} - 51, ~std::uint64_t{0} - 52, body + (std::uint64_t{1} << 32)}) {
    Frame altered = frame;
    std::memcpy(altered.data() + 8, &length, sizeof length);
    const std::uint32_t checksum = crc32c(std::span(altered).first(altered.size() - kFrameTrailerBytes));
    std::memcpy(altered.data() + altered.size() - kFrameTrailerBytes, &checksum, sizeof checksum);
    CHECK_THROWS(FrameReader(altered, FrameKind::kCkksBatch), ErrorCode::kWireFormat);
    CHECK(!summarise_frame(altered).problem.empty());
  }
}

TEST(a_summary_tells_what_can_be_told) {
  const Frame frame = sample_frame();
  const FrameSummary intact = summarise_frame(frame);
  CHECK(intact.problem.empty() && intact.has_magic && intact.checksum_ok);
  CHECK(intact.version == kWireVersion && intact.kind == 3 && intact.declared_bytes == frame.size());
  CHECK(intact.parameter_id == id_of(1) && intact.key_id == id_of(50));

  Frame damaged = frame;
  damaged.back() ^= 1;
  const FrameSummary summary = summarise_frame(damaged);
  CHECK(summary.has_magic && !summary.checksum_ok && !summary.problem.empty() && summary.kind == 3);
  CHECK(!summarise_frame({}).has_magic);
  CHECK(!summarise_frame(Frame(100, 'x')).has_magic);

  CHECK(std::string(frame_kind_name(1)) == "mask");
  CHECK(std::string(frame_kind_name(4)) == "ckks total");
  CHECK(std::string(frame_kind_name(8)) == "union order");
  CHECK(std::string(frame_kind_name(0)) == "unknown");
  CHECK(std::string(frame_kind_name(0xffff)) == "unknown");
}

}  // namespace common_wire_tests
