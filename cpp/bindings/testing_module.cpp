// shieldfl._testing: what the Python tests need and no user may have. Built on request only, never shipped.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bindings/array_view.h"
#include "bindings/public_seed.h"
#include "bindings/translate_errors.h"
#include "ckks/block_reader.h"
#include "ckks/decryptor.h"
#include "ckks/encryptor.h"
#include "common/random.h"
#include "kahe/encryptor.h"
#include "noise/gaussian.h"
#include "noise/grid_noise.h"
#include "noise/noise_share.h"
#include "pads/encryptor.h"
#include "paillier/decryptor.h"
#include "paillier/engine.h"
#include "parallel/parallel_for.h"
#include "ring/ntt.h"
#include "ring/sampler.h"

namespace shieldfl::bindings {
namespace {

// A public key and the frames that predictable randomness makes under it.
py::bytes encrypt_insecure(const py::bytes& public_key, const Array<double>& values, std::uint64_t seed,
                           std::optional<py::bytes> mask_bools, std::optional<double> weight,
                           std::uint64_t round, std::size_t threads) {
  const auto info = py::buffer(public_key).request();
  const ckks::Encryptor encryptor(ckks::PublicKey::from_frame(view(info)));
  std::optional<mask::Bitset> mask;
  if (mask_bools) {
    const std::string_view text = *mask_bools;
    mask = mask::Bitset::from_bools({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  }
  InsecureTestRandom seeds(seed);
  const mask::Bitset* const positions = mask ? &*mask : nullptr;
  const auto in = view(values);
  const NewBytes frame(encryptor.frame_bytes(in.size(), positions, weight.has_value()));
  encryptor.encrypt(scheme::ValuePieces<double>(in), positions, {round, weight, false, threads}, seeds,
                    frame.memory);
  return frame.object;
}

// The frame that predictable randomness makes of a client's values, under a long-term secret for each
// authority, of zeros but for its first byte in `secrets`.
template <typename PublicKey, typename Encryptor>
py::bytes enrolled_encrypt_insecure(const py::bytes& public_key, const std::vector<std::uint8_t>& secrets,
                                    std::uint32_t client, std::uint64_t round, const Array<double>& values,
                                    std::optional<double> weight, std::uint64_t seed) {
  const auto info = py::buffer(public_key).request();
  const auto key = PublicKey::from_frame(view(info));
  std::vector<enrolled::ClientKey> client_keys;
  for (const std::uint8_t secret : secrets) {
    Seed long_term;
    long_term.bytes[0] = secret;
    client_keys.push_back(
        enrolled::ClientKey::of_session(PublicKey::Scheme::kName, long_term, key->id(), client));
    client_keys.back().advance_to(round);
  }
  const Encryptor encryptor(key);
  InsecureTestRandom seeds(seed);
  const auto in = view(values);
  const NewBytes frame(encryptor.frame_bytes(in.size(), nullptr, weight.has_value()));
  encryptor.encrypt(client_keys, scheme::ValuePieces<double>(in), nullptr, {.weight = weight}, seeds,
                    frame.memory);
  return frame.object;
}

constexpr auto kahe_encrypt_insecure = &enrolled_encrypt_insecure<kahe::PublicKey, kahe::Encryptor>;
constexpr auto pads_encrypt_insecure = &enrolled_encrypt_insecure<pads::PublicKey, pads::Encryptor>;

// The residues of a batch or a total, block after block.
py::array_t<std::uint64_t> ciphertext_residues(const py::bytes& frame, bool total) {
  const auto info = py::buffer(frame).request();
  const auto parsed =
      ckks::CiphertextView::parse(view(info), total ? FrameKind::kCkksTotal : FrameKind::kCkksBatch);
  const std::size_t words = parsed.facts.block_words();
  std::vector<std::uint64_t> residues(ckks::block_count(parsed.facts, parsed.layout) * words);
  const ckks::BlockReader reader(parsed);
  for (std::size_t block = 0; block * words < residues.size(); ++block) {
    reader.read(block, std::span(residues).subspan(block * words, words));
  }
  return to_array(std::move(residues));
}

// A batch frame under this key around residues that were made elsewhere.
py::bytes batch_from_residues(const py::bytes& like, const Array<std::uint64_t>& residues,
                              std::uint64_t seed) {
  const auto info = py::buffer(like).request();
  const auto model = ckks::CiphertextView::parse(view(info), FrameKind::kCkksBatch);
  InsecureTestRandom seeds(seed);
  const Id id = random_id(seeds);
  FrameWriter writer = ckks::begin_frame(FrameKind::kCkksBatch, model.facts, model.layout, {&id, 1});
  const auto parameters = ckks::Parameters::from_facts(model.facts);
  const auto words = view(residues);
  std::vector<std::uint64_t> rows(model.facts.block_words());
  for (std::size_t block = 0; block < ckks::block_count(model.facts, model.layout); ++block) {
    std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(block * rows.size()), rows.size(), rows.begin());
    rlwe::pack_residues(parameters->digits(), parameters->facts().format(FrameKind::kCkksBatch), rows,
                        writer.reserve(model.facts.format(FrameKind::kCkksBatch).bytes()));
  }
  return to_bytes(writer.finish());
}

py::array_t<double> open_unflooded(const py::bytes& public_key, const py::bytes& exported_secret,
                                   const py::bytes& total) {
  const auto key_info = py::buffer(public_key).request();
  const auto secret_info = py::buffer(exported_secret).request();
  const auto total_info = py::buffer(total).request();
  const auto key = ckks::PublicKey::from_frame(view(key_info));
  const ckks::Decryptor decryptor(ckks::SecretKey::import_secret(*key, view(secret_info)));
  const auto parsed = ckks::CiphertextView::parse(view(total_info), FrameKind::kCkksTotal);
  return to_array(decryptor.insecure_open_unflooded(parsed, 1).values);
}

// The noise of bind_noise.cpp, with predictable randomness.
void add_gaussian_insecure(Array<float>& values, double standard_deviation, std::uint64_t seed,
                           std::size_t threads) {
  InsecureTestRandom seeds(seed);
  noise::add_gaussian(mutable_view(values), standard_deviation, seeds, threads);
}

py::tuple clip_and_add_gaussian_insecure(const Array<float>& values, double norm, double standard_deviation,
                                         std::uint64_t seed, std::size_t threads) {
  Array<float> noised(values.size());
  InsecureTestRandom seeds(seed);
  const noise::Clipping clipping = noise::clip_and_add_gaussian(view(values), mutable_view(noised), norm,
                                                                standard_deviation, seeds, threads);
  return py::make_tuple(std::move(noised), clipping.original_norm, clipping.was_clipped());
}

py::tuple clip_and_add_discrete_gaussian_insecure(const Array<float>& values, double norm,
                                                  unsigned fraction_bits, std::uint64_t variance_numerator,
                                                  std::uint64_t variance_denominator, std::uint64_t seed,
                                                  std::size_t threads) {
  Array<double> noised(values.size());
  InsecureTestRandom seeds(seed);
  const noise::Clipping clipping = noise::clip_and_add_discrete_gaussian_vartime(
      view(values), mutable_view(noised), norm, fraction_bits, {variance_numerator, variance_denominator},
      seeds, threads);
  return py::make_tuple(std::move(noised), clipping.original_norm, clipping.was_clipped());
}

py::tuple noise_share_insecure(const Array<float>& update, double clip_norm, double steps_per_unit,
                               const py::bytes& rotation_seed, std::uint64_t norm_bound_squared,
                               std::int32_t most_rounded, std::int32_t most_sent,
                               const std::vector<Array<std::uint64_t>>& thresholds,
                               const Array<std::uint32_t>& others, std::uint64_t seed, std::size_t threads) {
  const noise::NoiseTable table(view(thresholds.at(0)), view(thresholds.at(1)), view(others));
  Array<std::int32_t> share(update.size());
  InsecureTestRandom seeds(seed);
  const noise::ShareFacts facts =
      noise::noise_share_vartime(view(update), mutable_view(share),
                                 {clip_norm, steps_per_unit, norm_bound_squared, most_rounded, most_sent},
                                 public_seed(rotation_seed), table, seeds, threads);
  return py::make_tuple(std::move(share), facts.roundings);
}

// (1 + plaintext n) base^exponent modulo n^2 for each exponent and plaintext, all as little-endian words, by
// the table of the base, constant-time or not.
py::array_t<std::uint64_t> paillier_encrypt(const std::string& engine_name,
                                            const Array<std::uint64_t>& modulus,
                                            const Array<std::uint64_t>& base, std::size_t exponent_bits,
                                            const Array<std::uint64_t>& exponents,
                                            const Array<std::uint64_t>& plaintexts, bool vartime) {
  const auto engine = paillier::Engine::make(paillier::engine_named(engine_name), view(modulus));
  std::vector<std::uint64_t> base_pair(engine->pair_words());
  engine->to_pairs(view(base), base_pair);
  const auto table = engine->fixed_base(base_pair, exponent_bits);
  const auto powers = view(exponents);
  std::vector<std::uint64_t> numbers(powers.size() / table->exponent_words() * engine->pair_words());
  vartime ? table->power_vartime(powers, numbers) : table->power(powers, numbers);
  engine->add_plaintexts(view(plaintexts), numbers);
  engine->to_residues(numbers, numbers);
  return to_array(std::move(numbers));
}

// Opens a Paillier total with any way to decrypt: decrypt(residues) gives plaintexts, both little-endian, the
// one twice as long as the other.
py::tuple open_paillier_by(const py::bytes& public_key, const py::bytes& total, const py::function& decrypt) {
  const auto key_info = py::buffer(public_key).request();
  const auto total_info = py::buffer(total).request();
  const auto key = paillier::PublicKey::from_frame(view(key_info), paillier::engine_for(instruction_set()));
  const auto parsed = paillier::CiphertextView::parse(view(total_info), FrameKind::kPaillierTotal);
  auto opened = paillier::open_total(
      *key, parsed,
      [&decrypt](std::span<const std::uint64_t> residues, std::span<std::uint64_t> plaintexts) {
        const py::bytes in(reinterpret_cast<const char*>(residues.data()), residues.size_bytes());
        const std::string out = py::cast<std::string>(decrypt(in));
        if (out.size() != plaintexts.size_bytes())
          throw py::value_error("decrypt gave another number of bytes");
        std::memcpy(plaintexts.data(), out.data(), out.size());
      },
      1);
  return py::make_tuple(to_array(std::move(opened.values)), opened.weight_sum);
}

template <typename Sampler>
py::array_t<std::int8_t> sample(Sampler sampler, std::uint64_t seed, std::uint64_t stream_index,
                                std::size_t count) {
  InsecureTestRandom seeds(seed);
  RandomStream stream(seeds.next(), stream_index);
  std::vector<std::int8_t> samples(count);
  sampler(stream, samples);
  return to_array(std::move(samples));
}

py::array_t<std::uint64_t> transform(const Array<std::uint64_t>& values, std::uint64_t prime, bool inverse) {
  const auto in = view(values);
  std::vector<std::uint64_t> row(in.begin(), in.end());
  const ring::Ntt ntt(row.size(), ring::Modulus(prime));
  inverse ? ntt.inverse(row) : ntt.forward(row);
  return to_array(std::move(row));
}

}  // namespace
}  // namespace shieldfl::bindings

PYBIND11_MODULE(_testing, module) {
  using namespace shieldfl::bindings;
  module.doc() = "Insecure by design: predictable randomness and secret residues, for shieldfl's own tests.";
  translate_errors();
  module.def("encrypt_insecure", &encrypt_insecure, py::arg("public_key"), py::arg("values").noconvert(),
             py::arg("seed"), py::arg("mask_bools") = std::nullopt, py::arg("weight") = std::nullopt,
             py::arg("round") = 0, py::arg("threads") = 1);
  module.def("kahe_encrypt_insecure", kahe_encrypt_insecure);
  module.def("pads_encrypt_insecure", pads_encrypt_insecure);
  module.def("ciphertext_residues", &ciphertext_residues, py::arg("frame"), py::arg("total") = false);
  module.def("batch_from_residues", &batch_from_residues);
  module.def("open_unflooded", &open_unflooded);
  module.def("sample_ternary", [](std::uint64_t seed, std::uint64_t stream_index, std::size_t count) {
    return sample(shieldfl::ring::sample_ternary, seed, stream_index, count);
  });
  module.def("sample_error", [](std::uint64_t seed, std::uint64_t stream_index, std::size_t count) {
    return sample(shieldfl::ring::sample_error, seed, stream_index, count);
  });
  module.def("transform", &transform);
  module.def("paillier_encrypt", &paillier_encrypt, py::arg("engine"), py::arg("modulus"), py::arg("base"),
             py::arg("exponent_bits"), py::arg("exponents"), py::arg("plaintexts"),
             py::arg("vartime") = false);
  module.def("open_paillier_by", &open_paillier_by);
  module.def("add_gaussian_insecure", &add_gaussian_insecure, py::arg("values").noconvert(),
             py::arg("standard_deviation"), py::arg("seed"), py::arg("threads") = 1);
  module.def("clip_and_add_gaussian_insecure", &clip_and_add_gaussian_insecure, py::arg("values").noconvert(),
             py::arg("norm"), py::arg("standard_deviation"), py::arg("seed"), py::arg("threads") = 1);
  module.def("clip_and_add_discrete_gaussian_insecure", &clip_and_add_discrete_gaussian_insecure,
             py::arg("values").noconvert(), py::arg("norm"), py::arg("fraction_bits"),
             py::arg("variance_numerator"), py::arg("variance_denominator"), py::arg("seed"),
             py::arg("threads") = 1);
  module.def("noise_share_insecure", &noise_share_insecure, py::arg("update").noconvert(),
             py::arg("clip_norm"), py::arg("steps_per_unit"), py::arg("rotation_seed"),
             py::arg("norm_bound_squared"), py::arg("most_rounded"), py::arg("most_sent"),
             py::arg("thresholds"), py::arg("others"), py::arg("seed"), py::arg("threads") = 1);
}
