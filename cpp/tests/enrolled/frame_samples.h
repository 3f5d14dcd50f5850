// A frame of each kind of a scheme in which clients enrol, for the tests of its parsers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "tests/enrolled/enrolled_cases.h"

namespace shieldfl::tests {

inline constexpr std::size_t kParameterIdOffset = 16;
inline constexpr std::size_t kKeyIdOffset = 32;

struct Sample {
  FrameKind kind;
  Frame frame;
  std::function<void(const Frame&)> parse;
};

template <typename SumKey>
Frame frame_of(const SumKey& sum_key) {
  const auto bytes = sum_key.to_frame();
  return {bytes.begin(), bytes.end()};
}

inline void check_refused(const Sample& sample, const Frame& frame, ErrorCode code = ErrorCode::kWireFormat) {
  CHECK_THROWS((sample.parse(frame), 0), code);
}

// The header names the parameters that the body has.
template <typename Facts>
Frame with_parameter_id(Frame frame, const Facts& facts) {
  const Id id = digest(std::span(frame).subspan(kFrameHeaderBytes, facts.encode().size()));
  return with_field(std::move(frame), kParameterIdOffset, id);
}

// All of one session, and of the sum of clients 0, 2 and 4 in round 4.
template <typename Types>
struct FrameSamples {
  using Session = EnrolledSession<Types>;
  using PublicKey = typename Types::PublicKey;
  using View = typename Session::View;
  using Request = typename Session::Request;
  using SumKey = typename Types::SumKey;
  static constexpr auto kKinds = Session::Scheme::kKinds;

  explicit FrameSamples(const typename Types::ParameterRequest& parameters)
      : session(parameters, parameters.max_clients) {
    InsecureTestRandom seeds(3);
    std::vector<Frame> batches;
    for (const std::uint32_t client : {0U, 2U, 4U}) {
      const Values values(session.facts().values_per_block() + 3, 0.5);
      batches.push_back(encrypt(session, client, values, seeds, 4));
    }
    batch = batches[1];
    total = total_of(session, batches);
    request = session.request_of(total).to_frame();
    sum_key = frame_of(answer(session, Request::from_frame(request)));
  }

  [[nodiscard]] const auto& facts() const { return session.facts(); }

  [[nodiscard]] std::vector<Sample> samples() const {
    return {{kKinds.public_key, session.key->to_frame(),
             [](const Frame& frame) { (void)PublicKey::from_frame(frame); }},
            {kKinds.batch, batch, [](const Frame& frame) { (void)View::parse(frame, kKinds.batch); }},
            {kKinds.total, total, [](const Frame& frame) { (void)View::parse(frame, kKinds.total); }},
            {kKinds.sum_request, request, [](const Frame& frame) { (void)Request::from_frame(frame); }},
            {kKinds.sum_key, sum_key, [](const Frame& frame) { (void)SumKey::from_frame(frame); }}};
  }
  // Those whose head is a FrameHead.
  [[nodiscard]] std::vector<Sample> samples_of_a_sum() const {
    const auto all = samples();
    return {all[1], all[2], all[3]};
  }

  Session session;
  Frame batch;
  Frame total;
  Frame request;
  Frame sum_key;
};

}  // namespace shieldfl::tests
