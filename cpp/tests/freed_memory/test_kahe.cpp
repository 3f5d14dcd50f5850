// Key-additive encryption wipes what it works with: a client's keys, what follows from them, updates, sum
// keys.
#include <algorithm>
#include <array>
#include <cmath>

#include "kahe/frame_secret.h"
#include "ring/modulus.h"
#include "ring/sampler.h"
#include "tests/check.h"
#include "tests/freed_memory/secrets.h"
#include "tests/kahe/kahe_cases.h"

using namespace shieldfl;
using namespace shieldfl::tests;
using kahe::ClientKey;

namespace {

constexpr std::uint64_t kRound = 3;
constexpr std::uint32_t kClients = 3;

// Seeds that look random, as a system's do, and can be drawn again.
class KnownSeeds final : public SeedSource {
 public:
  explicit KnownSeeds(std::uint64_t first) : generator_(first) {}
  Seed next() override {
    Seed seed;
    for (std::uint8_t& byte : seed.bytes) byte = static_cast<std::uint8_t>(generator_());
    return seed;
  }

 private:
  std::mt19937_64 generator_;
};

Seed long_term_secret(std::uint32_t client) {
  return KnownSeeds(1000 + client).next();
}

ClientKey client_key(const Session& session, std::uint32_t client, std::uint64_t round = kRound) {
  ClientKey key =
      ClientKey::of_session(kahe::Scheme::kName, long_term_secret(client), session.key->id(), client);
  key.advance_to(round);
  return key;
}

void add_key(Secrets& secrets, const Session& session, std::uint32_t client) {
  secrets.add("what client and authority share", long_term_secret(client).bytes);
  for (std::uint64_t round = 0; round <= kRound; ++round)
    secrets.add("the key of round " + std::to_string(round),
                client_key(session, client, round).secret().bytes);
}

// A small polynomial in all forms in which it is worked with.
void add_polynomial(Secrets& secrets, const std::string& name, const Session& session,
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
std::vector<std::int32_t> add_samples(Secrets& secrets, const std::string& name, const Session& session,
                                      const Seed& seed, std::size_t number) {
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

std::vector<std::int32_t> add_frame_secret(Secrets& secrets, const Session& session, std::uint32_t client,
                                           const Frame& batch) {
  const auto view = kahe::CiphertextView::parse(batch, FrameKind::kKaheBatch);
  const Seed seed = enrolled::frame_seed(client_key(session, client), session.key->context_of(view.head),
                                         view.head.participants.front().frame_id);
  const auto secret = add_samples(secrets, "the secret", session, seed, 0);
  const std::size_t blocks = view.head.block_count();
  add_polynomial(secrets, "the secret", session, secret, blocks);
  return secret;
}

// Two blocks, and some of a third.
Values values_of(const Session& session, std::uint32_t client) {
  std::mt19937_64 generator(client);
  return random_values(session.facts(), 2 * session.facts().values_per_block() + 99, generator);
}

Frame encrypted(const Session& session, std::uint32_t client, const Values& values, const mask::Bitset* mask,
                bool clip = false) {
  const kahe::Encryptor encryptor(session.key);
  const kahe::EncryptOptions options{.purpose = kUpdate, .clip = clip, .threads = 1};
  Frame frame(encryptor.frame_bytes(values.size(), mask, false));
  KnownSeeds seeds(client);
  const ClientKey key = client_key(session, client);
  encryptor.encrypt(std::span(&key, 1), std::span<const double>(values), mask, options, seeds, frame);
  return frame;
}

struct Round {
  explicit Round(const kahe::ParameterRequest& request) : session(request, 0) {
    for (std::uint32_t client = 0; client < kClients; ++client)
      batches.push_back(encrypted(session, client, values_of(session, client), nullptr));
    total = total_of(session, batches, 1);
  }

  [[nodiscard]] std::vector<ClientKey> keys() const {
    std::vector<ClientKey> all;
    for (std::uint32_t client = 0; client < kClients; ++client) all.push_back(client_key(session, client));
    return all;
  }
  [[nodiscard]] kahe::SumKey sum_key(const Frame& of) const {
    return kahe::SumKey::of_request(*session.key, request_of(of), keys(), 1);
  }
  // Clients' keys and secrets, and their sum.
  [[nodiscard]] Secrets secrets() const {
    Secrets all;
    std::vector<std::int32_t> sum(session.facts().degree);
    for (std::uint32_t client = 0; client < kClients; ++client) {
      add_key(all, session, client);
      const auto own = add_frame_secret(all, session, client, batches[client]);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
    }
    add_polynomial(all, "the sum of secrets", session, sum, 3);
    std::vector<std::uint64_t> fields;
    for (const std::int32_t one : sum)
      fields.push_back(static_cast<std::uint64_t>(one + kahe::kMaxSample * static_cast<int>(kClients)));
    all.add("the sum of secrets as fields", fields);
    const auto frame = sum_key(total).to_frame();
    constexpr std::size_t kCoefficients = kFrameHeaderBytes + 4 + 4 + 8 + 2 * sizeof(Digest);
    all.add("the coefficients of a sum key's frame", std::span(frame).subspan(kCoefficients));
    return all;
  }

  Session session;
  std::vector<Frame> batches;
  Frame total;
};

const kahe::ParameterRequest kRings[] = {{4, 24, 20, 2048}, {4, 24, 20, 4096}, {4, 24, 20, 8192}};

void check_nothing_found(const Secrets& secrets, const std::function<void()>& operation) {
  const auto found = secrets.found_in(remains_of(operation));
  std::string all;
  for (const std::string& one : found) all += "\n        " + one;
  if (!found.empty()) fail(__FILE__, __LINE__, "not wiped:" + all);
}

}  // namespace

TEST(what_is_not_wiped_is_found) {
  const Session session(kRings[0], 0);
  Secrets secrets;
  add_key(secrets, session, 1);
  const auto samples = add_samples(secrets, "the secret", session, long_term_secret(1), 0);
  add_polynomial(secrets, "the secret", session, samples, 1);
  const auto found = secrets.found_in(remains_of([&] {
    const std::vector<std::int32_t> on_the_heap(samples);
    std::array<std::uint8_t, 1 << 16> on_the_stack;  // deeper than what ends the thread
    const Seed key = client_key(session, 1).secret();
    std::ranges::copy(key.bytes, on_the_stack.begin());
    asm volatile("" : : "r"(on_the_stack.data()) : "memory");
  }));
  CHECK((found ==
         std::vector<std::string>{"the secret in words on the heap", "the key of round 3 on the stack"}));
}

TEST(a_client_s_keys_of_all_rounds_are_wiped) {
  const Session session(kRings[0], 0);
  Secrets secrets;
  add_key(secrets, session, 1);
  check_nothing_found(secrets, [&] {
    const std::vector<ClientKey> keys = {client_key(session, 1), client_key(session, 1)};
    const auto copy = std::make_unique<ClientKey>(keys[0]);
    CHECK(copy->round() == kRound);
  });
}

TEST(encryption_wipes_keys_secrets_errors_and_values) {
  for (const kahe::ParameterRequest& request : kRings) {
    const Session session(request, 0);
    const Values values = values_of(session, 1);
    const mask::Bitset mask = [&] {
      std::vector<std::uint8_t> chosen(values.size());
      for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = i % 5 != 1 ? 1 : 0;
      return mask::Bitset::from_bools(chosen);
    }();
    for (const mask::Bitset* chosen : {static_cast<const mask::Bitset*>(nullptr), &mask}) {
      const Frame batch = encrypted(session, 1, values, chosen);
      Secrets secrets;
      add_key(secrets, session, 1);
      add_frame_secret(secrets, session, 1, batch);
      KnownSeeds seeds(1);
      random_id(seeds);
      const Seed error_seed = seeds.next();
      for (std::size_t block = 0; block < 3; ++block) {
        const auto error = add_samples(secrets, "an error", session, error_seed, block);
        secrets.add("an error", std::vector<std::int8_t>(error.begin(), error.end()));
      }
      Values gathered;
      std::vector<std::int64_t> integers;
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (chosen != nullptr && i % 5 == 1) continue;
        gathered.push_back(values[i]);
        integers.push_back(static_cast<std::int64_t>(std::nearbyint(std::ldexp(values[i], 20))));
      }
      secrets.add("the update, quantised", integers);
      if (chosen != nullptr) secrets.add("the update", gathered);  // else they are the caller's own
      check_nothing_found(secrets, [&] { CHECK(encrypted(session, 1, values, chosen) == batch); });
      // Also where the last value is refused, after all others were encrypted.
      Values refused = values;
      refused.back() = std::nan("");
      check_nothing_found(secrets, [&] {
        CHECK_THROWS(encrypted(session, 1, refused, chosen), ErrorCode::kRange);
        refused.back() = 1e9;
        encrypted(session, 1, refused, chosen, true);
      });
    }
  }
}

TEST(the_authority_wipes_keys_secrets_and_their_sum) {
  for (const kahe::ParameterRequest& request : kRings) {
    const Round round(request);
    const Frame frame = [&] {
      const auto made = round.sum_key(round.total).to_frame();
      return Frame(made.begin(), made.end());
    }();
    check_nothing_found(round.secrets(), [&] {
      const auto made = round.sum_key(round.total).to_frame();
      CHECK(std::equal(made.begin(), made.end(), frame.begin(), frame.end()));
      std::vector<ClientKey> wrong = round.keys();
      wrong.back().advance_to(kRound + 1);
      CHECK_THROWS(kahe::SumKey::of_request(*round.session.key, request_of(round.total), wrong, 1),
                   ErrorCode::kKeyMismatch);
    });
  }
}

TEST(opening_wipes_the_sum_key_and_what_it_has_opened_of_a_total_that_is_refused) {
  for (const kahe::ParameterRequest& request : kRings) {
    const Round round(request);
    const Frame sum_key = [&] {
      const auto made = round.sum_key(round.total).to_frame();
      return Frame(made.begin(), made.end());
    }();
    Secrets secrets = round.secrets();
    const auto open_with = [&](const Frame& total, const Frame& key) {
      return open(round.session, total, kahe::SumKey::from_frame(key), 1);
    };
    const auto sums = open_with(round.total, sum_key).values;
    check_nothing_found(secrets, [&] { CHECK(open_with(round.total, sum_key).values == sums); });

    // The last block alone was altered: all before it opens.
    secrets.add("the sums", sums);
    Frame altered = round.total;
    const auto view = kahe::CiphertextView::parse(round.total, FrameKind::kKaheTotal);
    const std::size_t block = view.block(2).data() - view.frame.data();
    std::swap_ranges(altered.begin() + static_cast<std::ptrdiff_t>(block),
                     altered.begin() + static_cast<std::ptrdiff_t>(block) + 512,
                     altered.begin() + static_cast<std::ptrdiff_t>(block) + 1024);
    reseal(altered);
    const auto asked = round.sum_key(altered).to_frame();
    const Frame other(asked.begin(), asked.end());
    check_nothing_found(secrets, [&] { CHECK_THROWS(open_with(altered, other), ErrorCode::kWireFormat); });
  }
}
