#include "common/wire.h"

#include <limits>

#include "common/crc32c.h"
#include "common/error.h"

namespace shieldfl {
namespace {

constexpr std::array<std::uint8_t, 4> kMagic = {'S', 'H', 'F', 'L'};

template <typename T>
T load(std::span<const std::uint8_t> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

Id load_id(std::span<const std::uint8_t> bytes, std::size_t offset) {
  Id id;
  std::memcpy(id.data(), bytes.data() + offset, id.size());
  return id;
}

constexpr const char* kWrongChecksum =
    "the frame's checksum does not fit: it was damaged on the way, ask for it again";

bool checksum_fits(std::span<const std::uint8_t> frame) {
  return crc32c(frame.first(frame.size() - kFrameTrailerBytes)) == FrameReader::stated_checksum(frame);
}

FrameSummary summarise_envelope(std::span<const std::uint8_t> bytes, FrameReader::Checksum checksum) {
  FrameSummary summary;
  constexpr std::size_t kEnvelope = frame_bytes(0);
  if (bytes.size() < kEnvelope) {
    summary.problem = "too short for a frame: it is truncated, or no shieldfl frame at all";
    return summary;
  }
  summary.has_magic = std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
  if (!summary.has_magic) {
    summary.problem = "no shieldfl frame: the magic bytes are missing";
    return summary;
  }
  summary.version = load<std::uint16_t>(bytes, 4);
  summary.kind = load<std::uint16_t>(bytes, 6);
  const auto body_bytes = load<std::uint64_t>(bytes, 8);
  summary.declared_bytes = body_bytes > std::numeric_limits<std::uint64_t>::max() - kEnvelope
                               ? std::numeric_limits<std::uint64_t>::max()
                               : body_bytes + kEnvelope;
  summary.parameter_id = load_id(bytes, 16);
  summary.key_id = load_id(bytes, 32);
  const bool complete = summary.declared_bytes == bytes.size();
  summary.checksum_ok =
      complete && (checksum == FrameReader::Checksum::kLeaveToCaller || checksum_fits(bytes));
  if (summary.version != kWireVersion) {
    summary.problem = "frame version " + std::to_string(summary.version) +
                      " is not the version this build reads (" + std::to_string(kWireVersion) +
                      "): update shieldfl on the older side";
  } else if (!complete) {
    summary.problem = "the frame states " + std::to_string(summary.declared_bytes) + " bytes and has " +
                      std::to_string(bytes.size()) + ": it is truncated or has bytes added";
  } else if (!summary.checksum_ok) {
    summary.problem = kWrongChecksum;
  }
  return summary;
}

}  // namespace

const char* frame_kind_name(std::uint16_t kind) {
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::kMask:
      return "mask";
    case FrameKind::kCkksPublicKey:
      return "ckks public key";
    case FrameKind::kCkksBatch:
      return "ckks batch";
    case FrameKind::kCkksTotal:
      return "ckks total";
    case FrameKind::kPaillierPublicKey:
      return "paillier public key";
    case FrameKind::kPaillierBatch:
      return "paillier batch";
    case FrameKind::kPaillierTotal:
      return "paillier total";
    case FrameKind::kUnionOrder:
      return "union order";
    case FrameKind::kKahePublicKey:
      return "kahe public key";
    case FrameKind::kKaheBatch:
      return "kahe batch";
    case FrameKind::kKaheTotal:
      return "kahe total";
    case FrameKind::kKaheSumRequest:
      return "kahe sum request";
    case FrameKind::kKaheSumKey:
      return "kahe sum key";
    case FrameKind::kPadsPublicKey:
      return "pads public key";
    case FrameKind::kPadsBatch:
      return "pads batch";
    case FrameKind::kPadsTotal:
      return "pads total";
    case FrameKind::kPadsSumRequest:
      return "pads sum request";
    case FrameKind::kPadsSumKey:
      return "pads sum key";
  }
  return "unknown";
}

FrameWriter::FrameWriter(const FrameHeader& header, std::size_t body_bytes)
    : frame_(frame_bytes(body_bytes)), out_(frame_) {
  put_header(header, body_bytes);
}

FrameWriter::FrameWriter(const FrameHeader& header, std::size_t body_bytes, std::span<std::uint8_t> out)
    : out_(out) {
  if (out_.size() != frame_bytes(body_bytes)) {
    throw Error(ErrorCode::kInternal, "the memory for a frame does not have the frame's length");
  }
  put_header(header, body_bytes);
}

void FrameWriter::put_header(const FrameHeader& header, std::size_t body_bytes) {
  put_bytes(kMagic);
  put(kWireVersion);
  put(static_cast<std::uint16_t>(header.kind));
  put(static_cast<std::uint64_t>(body_bytes));
  put_bytes(header.parameter_id);
  put_bytes(header.key_id);
}

void FrameWriter::put_bytes(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  std::memcpy(reserve(bytes.size()).data(), bytes.data(), bytes.size());
}

std::span<std::uint8_t> FrameWriter::reserve(std::size_t size) {
  if (size > out_.size() - kFrameTrailerBytes - position_) {
    throw Error(ErrorCode::kInternal, "a frame was written past its stated length");
  }
  const auto place = out_.subspan(position_, size);
  position_ += size;
  return place;
}

std::vector<std::uint8_t> FrameWriter::finish() {
  return finish(crc32c(written()));
}

std::vector<std::uint8_t> FrameWriter::finish(std::uint32_t checksum) {
  if (position_ + kFrameTrailerBytes != out_.size()) {
    throw Error(ErrorCode::kInternal, "a frame was written short of its stated length");
  }
  std::memcpy(out_.data() + position_, &checksum, sizeof checksum);
  return std::move(frame_);
}

FrameReader::FrameReader(std::span<const std::uint8_t> bytes, FrameKind expected, Checksum checksum) {
  const FrameSummary summary = summarise_envelope(bytes, checksum);
  if (!summary.problem.empty()) fail_wire_format(summary.problem);
  if (summary.kind != static_cast<std::uint16_t>(expected)) {
    fail_wire_format(std::string("expected a ") + frame_kind_name(static_cast<std::uint16_t>(expected)) +
                     " frame, got a " + frame_kind_name(summary.kind) + " frame");
  }
  header_ = {expected, summary.parameter_id, summary.key_id};
  body_ = bytes.subspan(kFrameHeaderBytes, bytes.size() - kFrameHeaderBytes - kFrameTrailerBytes);
}

std::uint32_t FrameReader::stated_checksum(std::span<const std::uint8_t> frame) {
  return load<std::uint32_t>(frame, frame.size() - kFrameTrailerBytes);
}

void FrameReader::check_checksum(std::span<const std::uint8_t> frame) {
  if (!checksum_fits(frame)) fail_checksum();
}

void FrameReader::fail_checksum() {
  fail_wire_format(kWrongChecksum);
}

std::span<const std::uint8_t> FrameReader::take_bytes(std::size_t size) {
  if (size > remaining()) {
    fail_wire_format("the frame's body ends before its fields do: it is truncated or was altered");
  }
  const auto bytes = body_.subspan(position_, size);
  position_ += size;
  return bytes;
}

Id FrameReader::take_id() {
  return load_id(take_bytes(sizeof(Id)), 0);
}

void FrameReader::expect_end() const {
  if (remaining() != 0) fail_wire_format("the frame's body goes on after its last field: it was altered");
}

FrameSummary summarise_frame(std::span<const std::uint8_t> bytes) {
  return summarise_envelope(bytes, FrameReader::Checksum::kCheck);
}

}  // namespace shieldfl
