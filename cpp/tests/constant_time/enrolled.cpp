// Schemes in which clients enrol: a client's key and update, the authority's answer, the opening of a total.
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>

#include "common/error.h"
#include "tests/constant_time/operations.h"
#include "tests/enrolled/enrolled_cases.h"

namespace shieldfl::tests {
namespace {

using enrolled::ClientKey;

const kahe::ParameterRequest kOnePrime{2, 24, 20, 2048};
const kahe::ParameterRequest kTwoPrimes{2, 24, 20, 4096};
const kahe::ParameterRequest kFourPrimes{2, 24, 20, 8192};
const pads::ParameterRequest kShortPads{2, 24, 20};
const pads::ParameterRequest kLongPads{2, 38, 20};
constexpr std::uint64_t kRound = 3;

// Client and authority have it in common, the client another one with each authority.
Seed long_term_secret(int variant, std::size_t authority = 0) {
  std::mt19937_64 generator = secrets_of(variant);
  generator.discard(authority * sizeof(Seed::bytes));
  Seed secret;
  for (std::uint8_t& byte : secret.bytes) byte = static_cast<std::uint8_t>(generator());
  mark_secret(secret.bytes.data(), secret.bytes.size());
  return secret;
}

template <typename Types>
ClientKey client_key(const EnrolledSession<Types>& session, std::uint32_t client, int variant) {
  ClientKey key = ClientKey::of_session(EnrolledSession<Types>::Scheme::kName, long_term_secret(variant),
                                        session.key->id(), client);
  key.advance_to(kRound);
  return key;
}

SecretOperation key_ratchet() {
  return {"a client's key of a later round, and a frame's seed", [](int variant) {
            return [secret = long_term_secret(variant),
                    context = enrolled::SumContext{.scheme = kahe::Scheme::kName}] {
              ClientKey key = ClientKey::of_session(kahe::Scheme::kName, secret, kAuthority, 1);
              key.advance_to(kRound);
              keep(frame_seed(key, context, kUpdate));
            };
          }};
}

template <typename Types, typename Encryption>
SecretOperation block_encryption(const char* name, const typename Types::ParameterRequest& request,
                                 std::size_t authorities = 1) {
  return {name, [request, authorities](int variant) {
            const auto session = std::make_shared<EnrolledSession<Types>>(request, 0);
            const auto& facts = session->facts();
            const packed::IntegerRows rows = facts.integer_rows();
            const std::int64_t most = facts.fixed_point().max_magnitude();
            std::mt19937_64 generator = secrets_of(variant);
            std::uniform_int_distribution<std::int64_t> distribution(-most, most);
            std::vector<std::int64_t> values(rows.rows * rows.row_length, 0);
            for (std::size_t i = 0; i < values.size(); ++i) {
              if (i % rows.row_length < rows.row_values) values[i] = distribution(generator);
            }
            std::vector<Seed> frame_seeds;
            for (std::size_t authority = 0; authority < authorities; ++authority)
              frame_seeds.push_back(long_term_secret(variant, authority));
            SecretSeeds seeds;
            const auto frame = std::make_shared<Encryption>(*session->key, std::move(frame_seeds), seeds);
            return
                [session, values = as_secret(values), frame,
                 encryption = std::make_shared<typename Encryption::Thread>(frame->thread()),
                 out = Frame(facts.format(EnrolledSession<Types>::Scheme::kKinds.batch).bytes())]() mutable {
                  (*encryption)(0, values, session->facts().values_per_block(), out);
                };
          }};
}

// A client's part from floats to a frame. The mask is the client's own and no secret to it.
template <typename Types>
SecretOperation update_encryption(const char* name, const typename Types::ParameterRequest& request) {
  return {name, [request](int variant) {
            const auto session = std::make_shared<EnrolledSession<Types>>(request, 0);
            const auto encryptor = std::make_shared<typename Types::Encryptor>(session->key);
            const std::size_t size = session->facts().values_per_block() + 77;
            std::mt19937_64 generator = secrets_of(variant);
            std::uniform_real_distribution<float> distribution(-1, 1);
            std::vector<float> values(size);
            for (float& value : values) value = distribution(generator);
            const enrolled::EncryptOptions options{.purpose = kUpdate, .weight = 0.75, .threads = 1};
            return [session, encryptor, key = client_key(*session, 1, variant), values = as_secret(values),
                    options, frame = Frame(encryptor->frame_bytes(size, nullptr, true))]() mutable {
              SecretSeeds seeds;
              encryptor->encrypt(std::span(&key, 1), scheme::ValuePieces<float>(values), nullptr, options,
                                 seeds, frame);
            };
          }};
}

// A total of two clients whose keys come from long_term_secret(), and what the authority has of it.
template <typename Types>
struct Opened {
  explicit Opened(const typename Types::ParameterRequest& request) : session(request, 0) {
    InsecureTestRandom seeds(1);
    const typename Types::Encryptor encryptor(session.key);
    typename EnrolledSession<Types>::Aggregator aggregator(session.key, kUpdate, 0, {}, 1);
    const Values values(session.facts().values_per_block(), 0.5);
    for (std::uint32_t client = 0; client < 2; ++client) {
      ClientKey key = client_key(session, client, 0);
      Frame frame(encryptor.frame_bytes(values.size(), nullptr, false));
      encryptor.encrypt(std::span(&key, 1), scheme::ValuePieces<double>(values), nullptr,
                        {.purpose = kUpdate}, seeds, frame);
      aggregator.add(frame);
    }
    total = total_of(aggregator);
    asked = session.request_of(total);
  }

  [[nodiscard]] std::vector<ClientKey> keys(int variant) const {
    return {client_key(session, 0, variant), client_key(session, 1, variant)};
  }

  EnrolledSession<Types> session;
  Frame total;
  typename EnrolledSession<Types>::Request asked;
};

// Any keys give a sum key of that request.
template <typename Types>
SecretOperation sum_key(const char* name, const typename Types::ParameterRequest& request) {
  return {name, [request](int variant) {
            const auto opened = std::make_shared<Opened<Types>>(request);
            return [opened, keys = opened->keys(variant)] {
              keep(Types::SumKey::of_request(*opened->session.key, opened->asked, keys, 1).to_frame());
            };
          }};
}

// Opens, and is refused.
template <typename Types>
void open_to_noise(const Opened<Types>& opened, const typename Types::SumKey& key) {
  try {
    keep(open(opened.session, opened.total, key, 1));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kWireFormat) return;
    throw;
  }
  throw std::logic_error("a wrong sum key opened a total");
}

// Other keys' sum key opens to noise, which is refused: so both variants take the same steps.
template <typename Types>
SecretOperation opening_to_noise(const char* name, const typename Types::ParameterRequest& request) {
  return {name, [request](int variant) {
            const auto opened = std::make_shared<Opened<Types>>(request);
            const auto key = std::make_shared<typename Types::SumKey>(
                Types::SumKey::of_request(*opened->session.key, opened->asked, opened->keys(variant + 1), 1));
            // The first exception sorts tables of the whole program: that is not what is to be followed.
            open_to_noise(*opened, *key);
            return [opened, key] { open_to_noise(*opened, *key); };
          }};
}

// One sum key for both variants: no other opens the total.
template <typename Types>
SecretOperation opening(const char* name, const typename Types::ParameterRequest& request) {
  return {name, [request](int) {
            const auto opened = std::make_shared<Opened<Types>>(request);
            const auto key = std::make_shared<typename Types::SumKey>(
                Types::SumKey::of_request(*opened->session.key, opened->asked, opened->keys(0), 1));
            return [opened, key] { keep(open(opened->session, opened->total, *key, 1)); };
          }};
}

}  // namespace

std::vector<SecretOperation> enrolled_operations() {
  return {
      key_ratchet(),
      // Under keys of more authorities the same is done for each, which is followed in full alone.
      block_encryption<KaheTypes, kahe::BlockEncryption>("encrypting a block under a client's key, one prime",
                                                         kOnePrime),
      block_encryption<PadsTypes, pads::BlockEncryption>("encrypting a block under short pads", kShortPads),
      block_encryption<PadsTypes, pads::BlockEncryption>("encrypting a block under long pads", kLongPads)};
}

std::vector<SecretOperation> long_enrolled_operations() {
  return {block_encryption<KaheTypes, kahe::BlockEncryption>(
              "encrypting a block under keys of two authorities", kOnePrime, 2),
          block_encryption<PadsTypes, pads::BlockEncryption>(
              "encrypting a block under short pads of two authorities", kShortPads, 2),
          block_encryption<KaheTypes, kahe::BlockEncryption>(
              "encrypting a block under a client's key, four primes", kFourPrimes),
          update_encryption<KaheTypes>("encrypting an update under a client's key", kTwoPrimes),
          update_encryption<PadsTypes>("encrypting an update under pads", kShortPads),
          sum_key<KaheTypes>("a sum key, one prime", kOnePrime),
          sum_key<PadsTypes>("a sum of pads", kLongPads),
          opening_to_noise<KaheTypes>("opening by a wrong sum key, one prime", kOnePrime),
          opening_to_noise<KaheTypes>("opening by a wrong sum key, two primes", kTwoPrimes),
          opening_to_noise<PadsTypes>("opening by a wrong sum of pads", kShortPads)};
}

std::vector<SecretOperation> valgrind_enrolled_operations() {
  return {opening<KaheTypes>("opening by a sum key, one prime", kOnePrime),
          opening<KaheTypes>("opening by a sum key, two primes", kTwoPrimes),
          opening<KaheTypes>("opening by a sum key, four primes", kFourPrimes),
          opening<PadsTypes>("opening by a sum of pads", kShortPads)};
}

}  // namespace shieldfl::tests
