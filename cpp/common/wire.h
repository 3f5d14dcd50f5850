// Frames: what travels between the roles. All integers are little-endian.
//
//   offset  bytes  field
//   0       4      magic "SHFL"
//   4       2      version (2)
//   6       2      kind
//   8       8      body_bytes: the length of the body
//   16      16     parameter id (zero where the kind has none)
//   32      16     key id (zero where the kind has none)
//   48      ...    body, laid out by the kind
//   last    4      CRC-32C over everything before it
//
// docs/reference/wire-format.md describes the bodies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "common/digest.h"

namespace shieldfl {

inline constexpr std::uint16_t kWireVersion = 2;
inline constexpr std::size_t kFrameHeaderBytes = 48;
inline constexpr std::size_t kFrameTrailerBytes = 4;

// The length of a frame whose body has this many bytes.
constexpr std::size_t frame_bytes(std::size_t body_bytes) {
  return kFrameHeaderBytes + body_bytes + kFrameTrailerBytes;
}

enum class FrameKind : std::uint16_t {
  kMask = 1,
  kCkksPublicKey = 2,
  kCkksBatch = 3,
  kCkksTotal = 4,
  kPaillierPublicKey = 5,
  kPaillierBatch = 6,
  kPaillierTotal = 7,
  kUnionOrder = 8,
  kKahePublicKey = 9,
  kKaheBatch = 10,
  kKaheTotal = 11,
  kKaheSumRequest = 12,
  kKaheSumKey = 13,
  kPadsPublicKey = 14,
  kPadsBatch = 15,
  kPadsTotal = 16,
  kPadsSumRequest = 17,
  kPadsSumKey = 18,
};

// "ckks batch" and so on; "unknown" for a number that is no kind.
const char* frame_kind_name(std::uint16_t kind);

struct FrameHeader {
  FrameKind kind;
  Id parameter_id{};
  Id key_id{};
};

// Builds one frame in memory of its own, in one allocation, or in the caller's: the body's length is known
// beforehand.
class FrameWriter {
 public:
  // Allocates the whole frame and writes the header.
  FrameWriter(const FrameHeader& header, std::size_t body_bytes);
  // Writes the header to `out`, which outlives the writer. Throws Error(kInternal) unless it has
  // frame_bytes(body_bytes) bytes.
  FrameWriter(const FrameHeader& header, std::size_t body_bytes, std::span<std::uint8_t> out);

  FrameWriter(FrameWriter&&) = default;
  FrameWriter& operator=(FrameWriter&&) = delete;

  template <typename T>
  void put(T value) {
    static_assert(std::is_integral_v<T> || std::is_floating_point_v<T>);
    put_bytes({reinterpret_cast<const std::uint8_t*>(&value), sizeof value});
  }
  void put_bytes(std::span<const std::uint8_t> bytes);
  // The next `size` bytes of the body, to be filled in place (by several threads, say).
  std::span<std::uint8_t> reserve(std::size_t size);
  // What has been written so far, header included.
  [[nodiscard]] std::span<const std::uint8_t> written() const { return out_.first(position_); }

  // Adds the checksum, and gives away the frame that was allocated (nothing where the memory is the
  // caller's). Throws Error(kInternal) unless exactly body_bytes were written.
  std::vector<std::uint8_t> finish();
  // The same with a checksum of everything written, which the caller has worked out on the way.
  std::vector<std::uint8_t> finish(std::uint32_t checksum);

 private:
  void put_header(const FrameHeader& header, std::size_t body_bytes);

  std::vector<std::uint8_t> frame_;
  std::span<std::uint8_t> out_;
  std::size_t position_ = 0;
};

// Reads the body of a frame; every read is checked against the end and throws Error(kWireFormat).
class FrameReader {
 public:
  enum class Checksum : std::uint8_t { kCheck, kLeaveToCaller };

  // Checks magic, version, kind, length and, unless it is left to the caller, the checksum. `bytes` must
  // outlive the reader.
  FrameReader(std::span<const std::uint8_t> bytes, FrameKind expected, Checksum checksum = Checksum::kCheck);

  // The checksum that the frame states.
  [[nodiscard]] static std::uint32_t stated_checksum(std::span<const std::uint8_t> frame);
  // Throws Error(kWireFormat) unless it is that of the bytes before it.
  static void check_checksum(std::span<const std::uint8_t> frame);
  // The error for a frame whose checksum is another one.
  [[noreturn]] static void fail_checksum();

  [[nodiscard]] const FrameHeader& header() const { return header_; }
  [[nodiscard]] std::size_t remaining() const { return body_.size() - position_; }

  template <typename T>
  T take() {
    static_assert(std::is_integral_v<T> || std::is_floating_point_v<T>);
    T value;
    std::memcpy(&value, take_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::span<const std::uint8_t> take_bytes(std::size_t size);
  Id take_id();
  // Throws unless the whole body has been read.
  void expect_end() const;

 private:
  FrameHeader header_{};
  std::span<const std::uint8_t> body_;
  std::size_t position_ = 0;
};

// What can be said of a frame without knowing its kind, for inspection: no bytes are an error here.
struct FrameSummary {
  bool has_magic = false;
  std::uint16_t version = 0;
  std::uint16_t kind = 0;
  std::uint64_t declared_bytes = 0;  // header + body + checksum, as the header states
  Id parameter_id{};
  Id key_id{};
  bool checksum_ok = false;
  std::string problem;  // empty when the envelope is intact
};
FrameSummary summarise_frame(std::span<const std::uint8_t> bytes);

}  // namespace shieldfl
