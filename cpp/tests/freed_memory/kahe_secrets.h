// What key-additive encryption must not leave behind, beside keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kahe/frame_secret.h"
#include "ring/modulus.h"
#include "ring/sampler.h"
#include "tests/freed_memory/enrolled_memory.h"

namespace shieldfl::tests {

using KaheSession = EnrolledSession<KaheTypes>;

template <>
inline std::vector<kahe::ParameterRequest> requests_for_memory<KaheTypes>() {
  return {{4, 24, 20, 2048}, {4, 24, 20, 4096}, {4, 24, 20, 8192}};
}

// A small polynomial in all forms in which it is worked with.
inline void add_polynomial(Secrets& secrets, const std::string& name, const KaheSession& session,
                           const std::vector<std::int32_t>& coefficients, std::size_t blocks) {
  const kahe::Parameters& parameters = *session.key->parameters();
  secrets.add(name, std::vector<std::int8_t>(coefficients.begin(), coefficients.end()));
  for (const int sign : {1, -1}) {
    std::vector<std::int32_t> own;
    for (const std::int32_t coefficient : coefficients) own.push_back(sign * coefficient);
    secrets.add(name + " in words", own);
    const auto prepared = kahe::prepare_secret(parameters, own);
    for (std::size_t p = 0; p < parameters.ntts().size(); ++p) {
      const ring::Ntt& ntt = parameters.ntts()[p];
      std::vector<std::uint64_t> row;
      for (const std::int32_t coefficient : own)
        row.push_back(ring::residue(coefficient, ntt.modulus().value));
      secrets.add(name + " as residues", row);
      ntt.forward(row);
      secrets.add(name + " transformed", row);
      secrets.add(name + " prepared for products", prepared[p].second);
      for (std::size_t block = 0; block < blocks; ++block) {
        const auto polynomial = session.key->polynomial(block).subspan(p * ntt.degree(), ntt.degree());
        ntt.multiply(polynomial, prepared[p], row);
        secrets.add(name + " times a, transformed", row);
        ntt.inverse(row);
        secrets.add(name + " times a", row);
      }
    }
  }
}

// What is drawn from a stream as a secret or an error, and what it is drawn from.
inline std::vector<std::int32_t> add_samples(Secrets& secrets, const std::string& name,
                                             const KaheSession& session, const Seed& seed,
                                             std::size_t number) {
  const std::size_t degree = session.facts().degree;
  secrets.add("the seed of " + name, seed.bytes);
  std::vector<std::uint8_t> bytes(16 * degree);
  RandomStream(seed, number).fill(bytes);
  secrets.add("the random bytes of " + name, bytes);
  RandomStream stream(seed, number);
  std::vector<std::int32_t> sums(degree);
  for (int binomial = 0; binomial < kahe::kBinomials; ++binomial) {
    std::vector<std::int8_t> samples(degree);
    ring::sample_error(stream, samples);
    secrets.add("a part of " + name, samples);
    for (std::size_t i = 0; i < degree; ++i) sums[i] += samples[i];
  }
  return sums;
}

// A client's one-time secret, which is returned.
inline std::vector<std::int32_t> add_frame_secret(Secrets& secrets, const KaheSession& session,
                                                  std::uint32_t client, const Frame& batch) {
  const auto view = kahe::CiphertextView::parse(batch, FrameKind::kKaheBatch);
  const auto secret = add_samples(secrets, "the secret", session, seed_of_frame(session, client, view), 0);
  add_polynomial(secrets, "the secret", session, secret, view.head.block_count());
  return secret;
}

// What else a batch was encrypted with, its id drawn.
inline void add_errors(Secrets& secrets, const KaheSession& session, SeedSource& seeds) {
  const Seed error_seed = seeds.next();
  for (std::size_t block = 0; block < 3; ++block) {
    const auto error = add_samples(secrets, "an error", session, error_seed, block);
    secrets.add("an error", std::vector<std::int8_t>(error.begin(), error.end()));
  }
}

// All clients' one-time secrets, and their sum.
inline void add_sum_of_secrets(Secrets& secrets, const EnrolledRound<KaheTypes>& round) {
  std::vector<std::int32_t> sum(round.session.facts().degree);
  for (std::uint32_t client = 0; client < kClients; ++client) {
    const auto own = add_frame_secret(secrets, round.session, client, round.batches[client]);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
  }
  add_polynomial(secrets, "the sum of secrets", round.session, sum, 3);
  std::vector<std::uint64_t> fields;
  for (const std::int32_t one : sum)
    fields.push_back(static_cast<std::uint64_t>(one + kahe::kMaxSample * static_cast<int>(kClients)));
  secrets.add("the sum of secrets as fields", fields);
}

}  // namespace shieldfl::tests
