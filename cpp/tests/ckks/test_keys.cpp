#include <algorithm>
#include <cstdint>
#include <vector>

#include "ckks/noise_bound.h"
#include "ring/sampler.h"
#include "tests/check.h"
#include "tests/ckks/ckks_cases.h"

namespace ckks_keys_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using tests::Frame;
using tests::key_pair;
using tests::with_field;

namespace {

const std::vector<ParameterRequest> kRequests = {{Packing::kExact, 20, 16, 10, 2048},
                                                 {Packing::kExact, 20, 16, 10, 4096},
                                                 {Packing::kSlots, 20, 16, 10, 4096}};

bool same_rows(const PublicKey& left, const PublicKey& right) {
  return std::ranges::equal(left.rows0(), right.rows0()) && std::ranges::equal(left.rows1(), right.rows1());
}

// The key's residues in a frame of these parameters, with ids that fit.
Frame key_frame(const ParameterFacts& facts, const PublicKey& key) {
  const Frame frame = key.to_frame();
  const std::size_t payload = kFrameHeaderBytes + ParameterFacts::encoded_bytes(facts.primes.size());
  const Id parameter_id = facts.id();
  std::vector<std::uint8_t> identified(parameter_id.begin(), parameter_id.end());
  for (const auto rows : {key.rows0(), key.rows1()}) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(rows.data());
    identified.insert(identified.end(), bytes, bytes + rows.size_bytes());
  }
  FrameWriter writer({FrameKind::kCkksPublicKey, parameter_id, digest(identified)},
                     frame.size() - kFrameHeaderBytes - kFrameTrailerBytes);
  writer.put_bytes(facts.encode());
  writer.put_bytes(std::span(frame).subspan(payload, frame.size() - payload - kFrameTrailerBytes));
  return writer.finish();
}

}  // namespace

TEST(public_keys_survive_the_wire) {
  for (const ParameterRequest& request : kRequests) {
    const PublicKey& key = *key_pair(request).public_key;
    const Frame frame = key.to_frame();
    const auto back = PublicKey::from_frame(frame);
    CHECK(back->id() == key.id() && back->parameters()->facts() == key.parameters()->facts());
    CHECK(same_rows(*back, key));
    CHECK(back->to_frame() == frame);
  }
}

TEST(altered_public_keys_are_refused) {
  for (const ParameterRequest& request : kRequests) {
    const PublicKey& key = *key_pair(request).public_key;
    const Frame frame = key.to_frame();
    const auto refuses = [](const Frame& altered) {
      CHECK_THROWS(PublicKey::from_frame(altered), ErrorCode::kWireFormat);
    };
    for (std::size_t offset = 0; offset < 100; ++offset) {
      Frame altered = frame;
      altered[offset] ^= 1;
      refuses(altered);  // the checksum
      if (offset >= 16) {
        tests::reseal(altered);
        refuses(altered);  // one of the ids
      }
    }
    const std::size_t payload =
        kFrameHeaderBytes + ParameterFacts::encoded_bytes(key.parameters()->facts().primes.size());
    for (std::size_t offset = payload; offset + 8 < frame.size(); offset += 997) {
      refuses(with_field(frame, offset, static_cast<std::uint8_t>(frame[offset] ^ 4)));
    }
    refuses(with_field(frame, payload, ~std::uint64_t{0}));  // a residue above its modulus
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{51}, std::size_t{52}, payload, frame.size() - 1}) {
      Frame cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
      refuses(cut);
      tests::reseal(cut);
      refuses(cut);
    }
    Frame longer = frame;
    longer.push_back(0);
    tests::reseal(longer);
    refuses(longer);
  }
}

TEST(public_keys_of_another_derivation_are_refused) {
  // Well-formed facts with their own ids, which this build does not derive: a scale that is too small, and
  // more dropped bits than the noise leaves room for.
  const PublicKey& key = *key_pair(kRequests[0]).public_key;
  std::vector<ParameterFacts> others(3, key.parameters()->facts());
  --others[0].log2_scale;
  ++others[1].dropped_bits0;
  ++others[2].dropped_bits1;
  for (const ParameterFacts& facts : others) {
    CHECK_THROWS(PublicKey::from_frame(key_frame(facts, key)), ErrorCode::kParameter);
  }
  CHECK(same_rows(*PublicKey::from_frame(key_frame(key.parameters()->facts(), key)), key));
}

TEST(fresh_keys_are_within_the_limits_of_the_noise_bound) {
  SystemSeedSource seeds;
  for (const ParameterRequest& request : kRequests) {
    const auto parameters = Parameters::derive(request);
    const auto degree = static_cast<double>(parameters->facts().degree);
    for (int i = 0; i < 5; ++i) {
      const KeyPair pair = generate_keys(parameters, seeds);
      const KeyNorms norms = measure_keys(*pair.secret_key, *pair.public_key);
      CHECK(static_cast<double>(norms.secret_weight) <= kMaxSecretWeightPerDegree * degree);
      CHECK(static_cast<double>(norms.error_norm) <= kMaxKeyErrorNormPerDegree * degree);
      CHECK(norms.error_max <= ring::kErrorCoins && norms.error_max > 0);
      // And no weaker than uniform ternary secrets and errors of variance 10.5 are: 10 standard deviations.
      CHECK(static_cast<double>(norms.secret_weight) >
            (2.0 / 3.0) * degree - 10.0 * std::sqrt(degree * 2.0 / 9.0));
      CHECK(static_cast<double>(norms.error_norm) >
            ring::kErrorVariance * (degree - 10.0 * std::sqrt(2.0 * degree)));
      CHECK(pair.secret_key->key_id() == pair.public_key->id());
    }
  }
}

TEST(key_pairs_are_distinct) {
  SystemSeedSource seeds;
  const auto parameters = Parameters::derive(kRequests[0]);
  const KeyPair one = generate_keys(parameters, seeds);
  const KeyPair two = generate_keys(parameters, seeds);
  CHECK(one.public_key->id() != two.public_key->id());
  CHECK(one.secret_key->export_secret() != two.secret_key->export_secret());
  CHECK(one.secret_key->flooding_seed().bytes != two.secret_key->flooding_seed().bytes);
}

TEST(a_secret_survives_export_and_import) {
  for (const ParameterRequest& request : kRequests) {
    const KeyPair& keys = key_pair(request);
    const auto exported = keys.secret_key->export_secret();
    CHECK(exported.size() == keys.public_key->parameters()->facts().degree + kSeedBytes);
    for (std::size_t i = 0; i + kSeedBytes < exported.size(); ++i) {
      CHECK(exported[i] == 0 || exported[i] == 1 || exported[i] == 0xff);
    }
    const auto back = SecretKey::import_secret(*keys.public_key, exported);
    CHECK(back->export_secret() == exported);
    CHECK(back->key_id() == keys.public_key->id());
    CHECK(back->flooding_seed().bytes == keys.secret_key->flooding_seed().bytes);

    std::mt19937_64 generator(81);
    const auto values = tests::random_values(*keys.public_key->parameters(), 100, generator);
    SystemSeedSource seeds;
    const Frame total = tests::total_of(keys, {tests::encrypt(keys, values, seeds)});
    CHECK(tests::open({keys.public_key, back}, total).values == tests::open(keys, total).values);
  }
}

TEST(a_foreign_or_damaged_secret_is_refused) {
  SystemSeedSource seeds;
  for (const ParameterRequest& request : kRequests) {
    const KeyPair& keys = key_pair(request);
    const KeyPair other = generate_keys(keys.public_key->parameters(), seeds);
    const auto refuses = [&](const SecretVector<std::uint8_t>& exported) {
      CHECK_THROWS(SecretKey::import_secret(*keys.public_key, exported), ErrorCode::kKeyMismatch);
    };
    refuses(other.secret_key->export_secret());
    const auto exported = keys.secret_key->export_secret();
    for (const std::size_t index : {std::size_t{0}, std::size_t{1000}, exported.size() - kSeedBytes - 1}) {
      for (const std::uint8_t value :
           {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{0xff}, std::uint8_t{0x80}}) {
        auto damaged = exported;
        if (damaged[index] == value) continue;
        damaged[index] = value;
        refuses(damaged);
      }
    }
    refuses({});
    refuses({exported.begin(), exported.end() - 1});
    auto longer = exported;
    longer.push_back(0);
    refuses(longer);
  }
}

}  // namespace ckks_keys_tests
