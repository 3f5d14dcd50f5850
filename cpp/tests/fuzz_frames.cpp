// fuzz_frames [iterations] [seed]: damaged frames of every kind against every parser.
//
// Only shieldfl::Error may come out of a parser. What one accepts must be the one frame for its content, and
// an aggregator that was fed with all of it must still hold the sum of exactly what it accepted.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/error.h"
#include "mask/mask_codec.h"
#include "ring/modulus.h"
#include "tests/ckks_cases.h"
#include "tests/frame_mutations.h"

using namespace shieldfl;
using namespace shieldfl::ckks;
using tests::Frame;
using tests::FrameMutator;

namespace {

constexpr std::uint64_t kRound = 5;
constexpr double kValue = 0.75;
constexpr double kWeight = 0.5;

void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

struct Statistics {
  std::uint64_t accepted = 0;
  std::map<ErrorCode, std::uint64_t> refused;
};

// Calls a parser; true when it accepted. Any exception but our own goes on up.
template <typename Parse>
bool accepts(Statistics& statistics, Parse parse) {
  try {
    parse();
    ++statistics.accepted;
    return true;
  } catch (const Error& error) {
    require(error.code() != ErrorCode::kInternal, "a frame led to an internal error");
    ++statistics.refused[error.code()];
    return false;
  }
}

// An aggregator that takes damaged batches among good ones, and an account of what it took.
class LiveAggregator {
 public:
  LiveAggregator(const KeyPair& keys, std::size_t positions, bool chosen, bool weighted)
      : keys_(keys), aggregator_(std::make_unique<Aggregator>(keys.public_key, kRound, 1)) {
    InsecureTestRandom seeds(kRound);
    EncryptOptions options;
    options.round = kRound;
    if (weighted) options.weight = kWeight;
    const mask::Bitset mask = chosen ? mask::Bitset::full(positions) : mask::Bitset(positions);
    // One for each client: the noise of copies of one ciphertext would add up beyond the bound.
    for (std::uint32_t i = 0; i < tests::facts_of(keys).max_clients; ++i) {
      good_.push_back(tests::encrypt(keys, tests::Values(positions, kValue), seeds, options, &mask));
    }
    expected_value_ = weighted ? kValue * kWeight : kValue;
    start();
  }

  [[nodiscard]] const Frame& good() const { return good_.front(); }
  [[nodiscard]] Frame total() const { return aggregator_->total(); }

  // A good batch that has not been added before.
  Frame fresh(FrameMutator& mutator) const {
    Frame frame = good_[aggregator_->clients() % good_.size()];
    mutator.replace_id(frame, tests::FrameOffsets(tests::facts_of(keys_)).frame_ids);
    return frame;
  }

  void feed(const Frame& frame, Statistics& statistics) {
    if (aggregator_->clients() == good_.size()) {
      check();
      start();
    }
    const Frame& original = good_[aggregator_->clients()];
    if (!accepts(statistics, [&] { aggregator_->add(frame); })) return;
    const CiphertextView batch = view(frame, FrameKind::kCkksBatch);
    require(repacked(batch) == frame, "two frames have the same content");
    const std::vector<std::uint64_t> rows = rows_of(batch);
    const std::vector<std::uint64_t> original_rows = rows_of(view(original, FrameKind::kCkksBatch));
    require(rows.size() == original_rows.size(), "a batch of another size was accepted");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::uint64_t q = prime_of(i);
      excess_[i] = ring::add(excess_[i], ring::add(rows[i], q - original_rows[i], q), q);
    }
  }

  // Takes what damaged payloads brought in out of the total, and opens the rest.
  void check() const {
    const Frame total_frame = total();
    const CiphertextView total_view = view(total_frame, FrameKind::kCkksTotal);
    std::vector<std::uint64_t> rows = rows_of(total_view);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::uint64_t q = prime_of(i);
      rows[i] = ring::add(rows[i], q - excess_[i], q);
    }
    const Frame clean = packed(total_view, rows);
    const OpenedSums opened = tests::open(keys_, clean, 1);
    const auto clients = static_cast<double>(aggregator_->clients());
    const double tolerance = total_view.facts.packing == Packing::kExact ? 0.0 : 0x1p-11;
    const auto right = [&](double sum, double expected) { return std::fabs(sum - expected) <= tolerance; };
    for (const double sum : opened.values) require(right(sum, clients * expected_value_), "a sum is wrong");
    require(!opened.weight_sum || right(*opened.weight_sum, clients * kWeight),
            "the sum of weights is wrong");
  }

 private:
  void start() {
    aggregator_ = std::make_unique<Aggregator>(keys_.public_key, kRound, 1);
    aggregator_->add(good_.front());
    excess_.assign(rows_of(view(good_.front(), FrameKind::kCkksBatch)).size(), 0);
  }

  static CiphertextView view(const Frame& frame, FrameKind kind) {
    return CiphertextView::parse(frame, kind);
  }

  static std::vector<std::uint64_t> rows_of(const CiphertextView& frame) {
    const std::size_t words = frame.facts.block_words();
    std::vector<std::uint64_t> rows(block_count(frame.facts, frame.layout) * words);
    for (std::size_t at = 0; at < rows.size(); at += words) {
      frame.unpack_block(at / words, std::span(rows).subspan(at, words));
    }
    return rows;
  }

  static Frame packed(const CiphertextView& frame, std::span<const std::uint64_t> rows) {
    FrameWriter writer = begin_frame(frame.kind, frame.facts, frame.layout, frame.frame_ids);
    const std::size_t words = frame.facts.block_words();
    for (std::size_t at = 0; at < rows.size(); at += words) {
      pack_block(frame.facts, rows.subspan(at, words), writer.reserve(frame.facts.block_bytes()));
    }
    return writer.finish();
  }
  static Frame repacked(const CiphertextView& frame) { return packed(frame, rows_of(frame)); }

  [[nodiscard]] std::uint64_t prime_of(std::size_t word) const {
    const ParameterFacts& facts = tests::facts_of(keys_);
    return facts.primes[word / facts.degree % facts.primes.size()];
  }

  const KeyPair& keys_;
  std::unique_ptr<Aggregator> aggregator_;
  std::vector<Frame> good_;
  double expected_value_ = 0.0;
  std::vector<std::uint64_t> excess_;  // what accepted payloads differ by from good ones
};

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
    for (LiveAggregator& target : targets_) totals_.push_back(target.total());
  }

  void step() {
    if (mutator_.once_in(3)) return fuzz_mask();
    if (mutator_.once_in(100)) return fuzz_public_key();
    // Whole ciphertexts are slow: most batches have none.
    const std::size_t which = mutator_.once_in(16) ? 1 + mutator_.below(2) : 0;
    if (mutator_.once_in(4)) return fuzz_total(which);
    fuzz_batch(which);
  }

  void check() const {
    for (const LiveAggregator& target : targets_) target.check();
  }
  [[nodiscard]] const Statistics& statistics() const { return statistics_; }

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
    accepts(statistics_, [&] { (void)mask::inspect_mask(frame); });
    mask::Bitset decoded;
    if (accepts(statistics_, [&] { decoded = mask::decode_mask(frame, original.size); })) {
      require(mask::encode_mask(decoded) == frame, "two frames have the same mask");
    }
  }

  void fuzz_batch(std::size_t which) {
    Frame frame = targets_[which].fresh(mutator_);
    if (!mutator_.once_in(50)) mutator_.mutate(frame, any_frame());
    (void)summarise_frame(frame);
    targets_[which].feed(frame, statistics_);
  }

  void fuzz_total(std::size_t which) {
    Frame frame = totals_[which];
    if (!mutator_.once_in(50)) mutator_.mutate(frame, any_frame());
    (void)summarise_frame(frame);
    accepts(statistics_, [&] { (void)tests::open(keys_of(which), frame, 1); });
    if (mutator_.once_in(4)) targets_[which].feed(frame, statistics_);
  }

  void fuzz_public_key() {
    Frame frame = public_key_;
    if (!mutator_.once_in(50)) mutator_.mutate(frame, any_frame());
    (void)summarise_frame(frame);
    std::shared_ptr<const PublicKey> key;
    if (accepts(statistics_, [&] { key = PublicKey::from_frame(frame); })) {
      require(key->to_frame() == frame, "two frames have the same key");
    }
  }

  const KeyPair& keys_of(std::size_t which) const { return which == 2 ? slots_ : exact_; }

  FrameMutator mutator_;
  Statistics statistics_;
  const KeyPair& exact_ = tests::key_pair({Packing::kExact, 64, 24, 20, 2048});
  const KeyPair& slots_ = tests::key_pair({Packing::kSlots, 16, 16, 10, {}});
  std::array<LiveAggregator, 3> targets_ = {LiveAggregator(exact_, 100, false, false),
                                            LiveAggregator(exact_, 300, true, true),
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
    for (; iteration < iterations; ++iteration) fuzzer.step();
    fuzzer.check();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("fuzz_frames: %llu iterations, seed %llu, accepted %llu, refused:",
                static_cast<unsigned long long>(iterations), static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(fuzzer.statistics().accepted));
    for (const auto& [code, count] : fuzzer.statistics().refused) {
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
