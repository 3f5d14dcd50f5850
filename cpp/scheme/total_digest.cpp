#include "scheme/total_digest.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "common/cpu_features.h"
#include "parallel/parallel_for.h"

namespace shieldfl::scheme {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kPersonalisation = "shieldfl total 1"sv;
// Hashing as many takes a quarter of a millisecond where the processor has AVX-512.
constexpr std::size_t kLeavesWorthAThread = 128;
// So many at a time keep the lanes of every kernel full.
constexpr std::size_t kLeavesTogether = 8;

// Node number 0 of a layer: leaves are layer 0, the root is layer 1.
Blake2bParameters parameters_of(std::uint64_t layer) {
  constexpr std::uint64_t kDigestBytes = sizeof(Digest);
  constexpr std::uint64_t kAnyFanout = 0;
  constexpr std::uint64_t kDepth = 2;
  Blake2bParameters parameters{
      kDigestBytes | kAnyFanout << 16 | kDepth << 24 | std::uint64_t{kTotalLeafBytes} << 32, 0,
      layer | kDigestBytes << 8};
  static_assert(kPersonalisation.size() == 2 * sizeof parameters[0]);
  std::memcpy(&parameters[6], kPersonalisation.data(), kPersonalisation.size());
  return parameters;
}

}  // namespace

Digest total_digest(std::span<const std::uint8_t> frame, std::size_t threads) {
  const Blake2bParameters leaf = parameters_of(0);
  // All but the last leaf, which has to be told that it is.
  const std::size_t whole = frame.empty() ? 0 : (frame.size() - 1) / kTotalLeafBytes;
  std::vector<Digest> digests(whole + 1);
  const Blake2bKernels& kernels = blake2b_kernels(instruction_set());
  parallel_for(whole, threads_for(threads, whole, kLeavesWorthAThread), kLeavesTogether,
               [&](std::size_t begin, std::size_t end) {
                 Blake2bParameters first = leaf;
                 first[1] = begin;
                 kernels.leaves(first.data(), frame.data() + begin * kTotalLeafBytes, kTotalLeafBytes,
                                end - begin, digests[begin].data());
               });
  Blake2bParameters last = leaf;
  last[1] = whole;
  digests[whole] = node_digest(last, frame.subspan(whole * kTotalLeafBytes), true);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(digests.data());
  return node_digest(parameters_of(1), {bytes, digests.size() * sizeof(Digest)}, true);
}

}  // namespace shieldfl::scheme
