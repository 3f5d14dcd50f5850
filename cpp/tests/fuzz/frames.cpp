// fuzz_frames [iterations] [seed]: damaged frames of every kind against every parser.
//
// Frames that are not damaged must be accepted. Only shieldfl::Error may come out of a parser. What one
// accepts must be the one frame for its content, and an aggregator that was fed with all of it must still
// hold the sum of exactly what it accepted.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "common/error.h"
#include "mask/mask_codec.h"
#include "tests/ckks/ckks_cases.h"
#include "tests/fuzz/enrolled_frames.h"
#include "tests/fuzz/frame_mutations.h"
#include "tests/fuzz/live_aggregator.h"
#include "tests/fuzz/paillier_frames.h"
#include "tests/fuzz/parser_outcomes.h"

using namespace shieldfl;
using namespace shieldfl::ckks;
using tests::accepts;
using tests::Frame;
using tests::FrameMutator;
using tests::LiveAggregator;
using tests::ParserOutcomes;
using tests::require;

namespace {

struct MaskCase {
  Frame frame;
  std::uint64_t size;
};

std::vector<MaskCase> mask_cases() {
  std::mt19937_64 generator(1);
  std::vector<MaskCase> cases;
  for (const std::uint64_t size : {0, 1, 63, 64, 300, 1000}) {
    for (const unsigned percent : {0U, 3U, 50U, 97U, 100U}) {
      std::vector<std::uint8_t> bools(size);
      for (std::uint8_t& chosen : bools) chosen = generator() % 100 < percent ? 1 : 0;
      cases.push_back({mask::encode_mask(mask::Bitset::from_bools(bools)), size});
    }
  }
  return cases;
}

class Fuzzer {
 public:
  explicit Fuzzer(std::uint64_t seed) : mutator_(seed) {
    for (const LiveAggregator& target : targets_) totals_.push_back(target.total());
  }

  // Throws where a parser refuses a frame as it was made.
  void take_undamaged() const {
    for (const MaskCase& original : masks_) {
      (void)mask::inspect_mask(original.frame);
      require(mask::encode_mask(mask::decode_mask(original.frame, original.size)) == original.frame,
              "a mask was read wrong");
    }
    require(PublicKey::from_frame(public_key_)->to_frame() == public_key_, "a key was read wrong");
    for (std::size_t which = 0; which < targets_.size(); ++which) {
      targets_[which].take_undamaged();
      (void)tests::open(keys_of(which), totals_[which], 1);
    }
    paillier_.take_undamaged();
    kahe_.take_undamaged();
    pads_.take_undamaged();
  }

  void step() {
    if (mutator_.once_in(10)) return paillier_.step(outcomes_);
    if (mutator_.once_in(5)) return kahe_.step(outcomes_);
    if (mutator_.once_in(5)) return pads_.step(outcomes_);
    if (mutator_.once_in(3)) return fuzz_mask();
    if (mutator_.once_in(100)) return fuzz_public_key();
    // Whole ciphertexts are slow: most batches have none.
    const std::size_t which = mutator_.once_in(8) ? 1 + mutator_.below(2) : 0;
    if (mutator_.once_in(4)) return fuzz_total(which);
    if (mutator_.once_in(4)) return fuzz_subtotal(which);
    fuzz_batch(which);
  }

  void check() const {
    for (const LiveAggregator& target : targets_) target.check();
  }
  [[nodiscard]] const ParserOutcomes& outcomes() const { return outcomes_; }

 private:
  const Frame& any_frame() {
    const std::size_t which = mutator_.once_in(40) ? mutator_.below(3) : 0;
    switch (mutator_.below(3)) {
      case 0:
        return masks_[mutator_.below(masks_.size())].frame;
      case 1:
        return targets_[which].good();
      default:
        return totals_[which];
    }
  }

  void fuzz_mask() {
    const MaskCase& original = masks_[mutator_.below(masks_.size())];
    Frame frame = original.frame;
    if (!mutator_.once_in(50)) mutator_.mutate(frame, any_frame());
    (void)summarise_frame(frame);
    accepts(outcomes_, [&] { (void)mask::inspect_mask(frame); });
    mask::Bitset decoded;
    if (accepts(outcomes_, [&] { decoded = mask::decode_mask(frame, original.size); })) {
      require(mask::encode_mask(decoded) == frame, "two frames have the same mask");
    }
  }

  void fuzz_batch(std::size_t which) {
    const Frame fresh = targets_[which].fresh_batch(mutator_);
    Frame frame = fresh;
    if (!mutator_.once_in(50)) mutator_.mutate(frame, any_frame());
    (void)summarise_frame(frame);
    const bool accepted = targets_[which].feed_batch(frame, outcomes_);
    require(accepted || frame != fresh, "an undamaged batch was refused");
  }

  void fuzz_subtotal(std::size_t which) {
    const Frame fresh = targets_[which].fresh_total(mutator_);
    Frame frame = fresh;
    if (!mutator_.once_in(50)) mutator_.mutate(frame, any_frame());
    (void)summarise_frame(frame);
    const bool accepted = targets_[which].feed_total(frame, outcomes_);
    require(accepted || frame != fresh, "an undamaged total was refused");
  }

  void fuzz_total(std::size_t which) {
    Frame frame = totals_[which];
    if (!mutator_.once_in(50)) mutator_.mutate(frame, any_frame());
    (void)summarise_frame(frame);
    accepts(outcomes_, [&] { (void)tests::open(keys_of(which), frame, 1); });
    if (mutator_.once_in(4)) targets_[which].feed_batch(frame, outcomes_);
  }

  void fuzz_public_key() {
    Frame frame = public_key_;
    if (!mutator_.once_in(50)) mutator_.mutate(frame, any_frame());
    (void)summarise_frame(frame);
    std::shared_ptr<const PublicKey> key;
    if (accepts(outcomes_, [&] { key = PublicKey::from_frame(frame); })) {
      require(key->to_frame() == frame, "two frames have the same key");
    }
  }

  const KeyPair& keys_of(std::size_t which) const { return which == 2 ? slots_ : exact_; }

  FrameMutator mutator_;
  ParserOutcomes outcomes_;
  tests::PaillierFuzzer paillier_{mutator_};
  tests::EnrolledFuzzer<tests::KaheTypes> kahe_{mutator_, {8, 24, 20, 2048}};
  tests::EnrolledFuzzer<tests::PadsTypes> pads_{mutator_, {8, 24, 20}};
  const KeyPair& exact_ = tests::key_pair({Packing::kExact, 64, 24, 20, 2048});
  const KeyPair& slots_ = tests::key_pair({Packing::kSlots, 16, 16, 10, {}});
  std::array<LiveAggregator, 3> targets_ = {LiveAggregator(exact_, 100, false, false),
                                            LiveAggregator(exact_, 2100, true, true),
                                            LiveAggregator(slots_, 300, true, false)};
  std::vector<Frame> totals_;
  const Frame public_key_ = exact_.public_key->to_frame();
  const std::vector<MaskCase> masks_ = mask_cases();
};

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kParameter:
      return "parameter";
    case ErrorCode::kKeyMismatch:
      return "key mismatch";
    case ErrorCode::kWireFormat:
      return "wire format";
    case ErrorCode::kRange:
      return "range";
    case ErrorCode::kCapacity:
      return "capacity";
    case ErrorCode::kPolicy:
      return "policy";
    case ErrorCode::kDuplicateFrame:
      return "duplicate frame";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t iterations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t iteration = 0;
  try {
    Fuzzer fuzzer(seed);
    fuzzer.take_undamaged();
    for (; iteration < iterations; ++iteration) fuzzer.step();
    fuzzer.check();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("fuzz_frames: %llu iterations, seed %llu, accepted %llu, refused:",
                static_cast<unsigned long long>(iterations), static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(fuzzer.outcomes().accepted));
    for (const auto& [code, count] : fuzzer.outcomes().refused) {
      std::printf(" %s %llu,", name_of(code), static_cast<unsigned long long>(count));
    }
    std::printf(" %.1f s\n", seconds.count());
  } catch (const std::exception& error) {
    std::printf("fuzz_frames: iteration %llu, seed %llu: %s\n", static_cast<unsigned long long>(iteration),
                static_cast<unsigned long long>(seed), error.what());
    return 1;
  }
  return 0;
}
