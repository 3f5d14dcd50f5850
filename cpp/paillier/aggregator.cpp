#include "paillier/aggregator.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/crc32c.h"
#include "common/error.h"
#include "parallel/parallel_for.h"
#include "scheme/value_reader.h"

namespace shieldfl::paillier {
namespace {

// What was sent in the clear, quantised. Throws Error(kRange) for the first value that the parameters cannot
// represent.
template <typename T>
std::vector<std::int64_t> quantise(const Parameters& parameters, ClearFields<T> clear, std::size_t threads) {
  constexpr std::size_t kAtOnce = 4096;
  constexpr std::size_t kValuesWorthQuantising = std::size_t{1} << 17;  // a nanosecond or two each
  constexpr std::uint64_t kNone = scheme::ValueReader<T>::kNone;
  std::vector<std::int64_t> integers(clear.size());
  std::mutex refused_mutex;
  std::uint64_t refused = kNone;
  const std::size_t used = threads_for(threads, clear.size(), kValuesWorthQuantising);
  parallel_for(clear.size(), used, kAtOnce, [&](std::size_t begin, std::size_t end) {
    scheme::ValueReader<T> reader(scheme::ValuePieces<T>(clear), nullptr, parameters.fixed_point(), 1.0,
                                  false);
    reader.read(begin, std::span(integers).subspan(begin, end - begin));
    const std::lock_guard lock(refused_mutex);
    refused = std::min(refused, reader.refused_position);
  });
  if (refused != kNone) {
    throw Error(ErrorCode::kRange,
                "number " + std::to_string(refused) + " of what was sent in the clear is " +
                    (std::isfinite(clear[refused]) ? "above the limit in magnitude: " : "NaN or infinite: ") +
                    "the client has to keep to what it would encrypt");
  }
  return integers;
}

std::uint64_t largest_magnitude(std::span<const std::int64_t> integers) {
  std::int64_t largest = 0;
  for (const std::int64_t integer : integers) largest = std::max(largest, std::abs(integer));
  return static_cast<std::uint64_t>(largest);
}

scheme::Expected expected_of(std::optional<std::uint64_t> round, const UnionOrder* order) {
  scheme::Expected expected{.round = round};
  if (order != nullptr) {
    expected.positions = {order->id(), order->positions().size()};
    expected.weighted = false;
  }
  return expected;
}

}  // namespace

Aggregator::Aggregator(std::shared_ptr<const PublicKey> key, std::optional<std::uint64_t> round,
                       std::size_t threads, const UnionOrder* order)
    : RoundSum(key->parameters().id(), key->id(), key->parameters().facts().max_clients,
               expected_of(round, order)),
      key_(std::move(key)),
      threads_(threads) {
  static_cast<void>(resolve_threads(threads));  // refused here, where it was given
}

void Aggregator::add(std::span<const std::uint8_t> frame, std::uint32_t weight) {
  add(CiphertextView::parse(frame, FrameKind::kPaillierBatch), weight);
}

void Aggregator::add(const CiphertextView& batch, std::uint32_t weight) {
  check_weight(batch, weight);
  add(batch, FrameKind::kPaillierBatch, weight, weight * key_->parameters().max_magnitude(),
      [&](CiphertextSums& sums) { sums.add(batch, weight, threads_); });
}

template <typename T>
void Aggregator::add_mixed(std::span<const std::uint8_t> frame, ClearFields<T> clear, std::uint32_t weight) {
  add_mixed(CiphertextView::parse(frame, FrameKind::kPaillierBatch), clear, weight);
}

template <typename T>
void Aggregator::add_mixed(const CiphertextView& batch, ClearFields<T> clear, std::uint32_t weight) {
  check_weight(batch, weight);
  if (batch.layout.weighted) {
    throw Error(ErrorCode::kParameter,
                "a batch with an encrypted weight cannot be added together with values in the clear");
  }
  if (clear.size() != batch.layout.value_count) {
    throw Error(ErrorCode::kParameter,
                "there are " + std::to_string(clear.size()) + " values in the clear, and the batch has " +
                    std::to_string(batch.layout.value_count) + " fields: give one for each");
  }
  const std::vector<std::int64_t> integers = quantise(key_->parameters(), clear, threads_);
  const std::uint64_t largest = key_->parameters().max_magnitude() + largest_magnitude(integers);
  add(batch, FrameKind::kPaillierBatch, weight, weight * largest, [&](CiphertextSums& sums) {
    sums.add(batch, weight, threads_);
    sums.add_clear(integers, weight, threads_);
  });
}

template void Aggregator::add_mixed(const CiphertextView&, ClearFields<float>, std::uint32_t);
template void Aggregator::add_mixed(const CiphertextView&, ClearFields<double>, std::uint32_t);
template void Aggregator::add_mixed(std::span<const std::uint8_t>, ClearFields<float>, std::uint32_t);
template void Aggregator::add_mixed(std::span<const std::uint8_t>, ClearFields<double>, std::uint32_t);

void Aggregator::add_total(std::span<const std::uint8_t> frame) {
  add_total(CiphertextView::parse(frame, FrameKind::kPaillierTotal));
}

void Aggregator::add_total(const CiphertextView& total) {
  // Values in the clear are as large as encrypted ones at most, each client's in the fields of its
  // ciphertexts.
  const std::uint64_t largest = (total.holds_clear ? 2 : 1) * key_->parameters().max_magnitude();
  add(total, FrameKind::kPaillierTotal, total.total_weight, total.total_weight * largest,
      [&](CiphertextSums& sums) { sums.add(total, 1, threads_); });
}

void Aggregator::check_weight(const CiphertextView& batch, std::uint32_t weight) const {
  const std::uint32_t most = key_->parameters().facts().max_weight;
  if (weight < 1 || weight > most) {
    throw Error(ErrorCode::kParameter,
                "the weight of a batch must be between 1 and max_weight, which is " + std::to_string(most));
  }
  if (weight != 1 && batch.layout.weighted) {
    throw Error(ErrorCode::kParameter, "the batch carries an encrypted weight and takes no other one");
  }
}

void Aggregator::check_left_out(const CiphertextView& frame) const {
  if (!expects_positions() && frame.present) {
    throw Error(
        ErrorCode::kParameter,
        "the batch leaves ciphertexts out, which is for groups with different masks: give the aggregator "
        "the order of the group's union");
  }
}

void Aggregator::add(const CiphertextView& frame, FrameKind expected, std::uint64_t total_weight,
                     std::uint64_t largest, const AddToSums& add_to_sums) {
  if (frame.kind != expected) {
    throw Error(ErrorCode::kWireFormat, expected == FrameKind::kPaillierBatch
                                            ? "only batches are added here, no totals"
                                            : "only totals are added here, no batches");
  }
  const std::lock_guard lock(mutex_);
  check(frame.layout, frame.frame_ids);
  check_left_out(frame);
  if (field_bound_ + largest >= std::uint64_t{1} << (key_->parameters().field_bits() - 1)) {
    throw Error(
        ErrorCode::kCapacity,
        "what was sent in the clear leaves the fields no room to be told apart for sure: raise max_clients");
  }
  check_residues(frame, *key_, threads_);
  std::set<Id> added(frame.frame_ids.begin(), frame.frame_ids.end());
  // Sums of their own until they hold the first batch.
  std::optional<CiphertextSums> first;
  if (empty()) first.emplace(key_, block_count(key_->parameters(), frame.layout));
  check_sums();
  try {
    add_to_sums(first ? *first : sums_);
  } catch (...) {
    sums_lost_ = !first;
    throw;
  }
  if (first) sums_ = std::move(*first);
  total_weight_ += total_weight;
  field_bound_ += largest;
  holds_clear_ |= field_bound_ > total_weight_ * key_->parameters().max_magnitude();
  note_added(frame.layout, std::move(added));
}

void Aggregator::check_sums() const {
  if (sums_lost_) {
    throw Error(ErrorCode::kInternal,
                "memory ran out in an earlier addition, and the sum is lost: start a new one");
  }
}

std::size_t Aggregator::total_bytes() const {
  return ciphertext_frame_bytes(key_->parameters(), summed_layout(), frame_count(), nullptr);
}

void Aggregator::write_total(std::span<std::uint8_t> frame) const {
  const Parameters& parameters = key_->parameters();
  const Layout& layout = summed_layout();
  check_sums();
  FrameWriter writer = begin_frame(FrameKind::kPaillierTotal, parameters, layout, frame_ids(), total_weight_,
                                   nullptr, holds_clear_, frame);
  const std::uint32_t head_checksum = crc32c(writer.written());
  const auto payload = writer.reserve(block_count(parameters, layout) * parameters.ciphertext_bytes());
  writer.finish(sums_.write(payload, head_checksum, threads_));
}

}  // namespace shieldfl::paillier
