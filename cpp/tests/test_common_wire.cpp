#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/crc32c.h"
#include "common/digest.h"
#include "common/wire.h"
#include "tests/altered_frames.h"
#include "tests/check.h"

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

// A frame with a body of every type that bodies hold.
Frame sample_frame() {
  const std::vector<std::uint8_t> tail = {9, 8, 7};
  FrameWriter writer({FrameKind::kCkksBatch, id_of(1), id_of(50)}, 1 + 2 + 4 + 8 + 8 + 16 + 3 + 2);
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
  return writer.finish();
}

std::uint32_t crc32c_of(const std::vector<std::uint8_t>& bytes) {
  return crc32c(bytes);
}

}  // namespace

TEST(crc32c_gives_the_vectors_of_rfc_3720) {
  CHECK(crc32c_of(std::vector<std::uint8_t>(32, 0)) == 0x8a9136aa);
  CHECK(crc32c_of(std::vector<std::uint8_t>(32, 0xff)) == 0x62a8ab43);
  std::vector<std::uint8_t> ascending(32);
  for (std::size_t i = 0; i < 32; ++i) ascending[i] = static_cast<std::uint8_t>(i);
  CHECK(crc32c_of(ascending) == 0x46dd794e);
  CHECK(crc32c_of({ascending.rbegin(), ascending.rend()}) == 0x113fdb5c);
  CHECK(crc32c_of({'1', '2', '3', '4', '5', '6', '7', '8', '9'}) == 0xe3069283);
  CHECK(crc32c_of({}) == 0);
  // A checksum can be continued anywhere.
  for (std::size_t cut = 0; cut <= 32; ++cut) {
    CHECK(crc32c(std::span(ascending).subspan(cut), crc32c(std::span(ascending).first(cut))) == 0x46dd794e);
  }
}

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
  Frame expected = {'S', 'H', 'F', 'L', 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0};
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
  for (const int version : {0, 2, 0x0100, 0xffff}) {
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
  CHECK(std::string(frame_kind_name(0)) == "unknown");
  CHECK(std::string(frame_kind_name(0xffff)) == "unknown");
}
