#include <memory>
#include <optional>
#include <vector>

#include "bindings/bind_areas.h"
#include "bindings/bind_scheme.h"
#include "kahe/aggregator.h"
#include "kahe/encryptor.h"
#include "kahe/sum_key.h"
#include "rlwe/moduli.h"

namespace shieldfl::bindings {
namespace {

using kahe::CiphertextView;
using kahe::ClientKey;
using kahe::Parameters;
using kahe::PublicKey;
using kahe::SumKey;
using kahe::SumRequest;

// Bytes of a fixed length. Throws Error(kParameter) for another one.
template <typename Bytes>
Bytes fixed(const py::buffer& buffer, const char* name) {
  const auto info = buffer.request();
  const auto bytes = view(info);
  Bytes result{};
  if (bytes.size() != result.size()) {
    throw Error(ErrorCode::kParameter,
                std::string(name) + " must have " + std::to_string(result.size()) + " bytes");
  }
  std::copy(bytes.begin(), bytes.end(), result.begin());
  return result;
}

Seed seed_of(const py::buffer& secret) {
  Seed seed;
  seed.bytes = fixed<Digest>(secret, "a client's secret");
  return seed;
}

py::dict facts_of(const kahe::ParameterFacts& facts) {
  py::dict dict;
  dict["max_clients"] = facts.max_clients;
  dict["value_bits"] = facts.value_bits;
  dict["fraction_bits"] = facts.fraction_bits;
  dict["guard_bits"] = facts.guard_bits();
  dict["values_per_coefficient"] = facts.values_per_coefficient;
  dict["ring_degree"] = facts.degree;
  dict["primes"] = facts.primes;
  dict["log2_scale"] = facts.log2_scale;
  dict["values_per_ciphertext"] = facts.values_per_block();
  dict["ciphertext_bytes"] = facts.format(FrameKind::kKaheBatch).bytes();
  dict["total_ciphertext_bytes"] = facts.format(FrameKind::kKaheTotal).bytes();
  dict["dropped_bits"] = facts.dropped_bits;
  return dict;
}

py::list participants_of(const kahe::FrameHead& head) {
  py::list list;
  for (const kahe::Participant& one : head.participants) {
    list.append(py::make_tuple(one.client, to_bytes(one.frame_id)));
  }
  return list;
}

void bind_parameters(py::module_& module) {
  py::class_<Parameters, std::shared_ptr<Parameters>>(module, "KaheParameters")
      .def(py::init([](std::uint32_t max_clients, unsigned value_bits, unsigned fraction_bits,
                       std::optional<std::uint32_t> ring_degree) {
        const ReleasedInterpreter release;
        return std::const_pointer_cast<Parameters>(
            Parameters::derive({max_clients, value_bits, fraction_bits, ring_degree}));
      }))
      .def_property_readonly("id", [](const Parameters& self) { return to_bytes(self.id()); })
      .def_property_readonly("facts", [](const Parameters& self) { return facts_of(self.facts()); })
      .def_property_readonly("bytes_per_value", &Parameters::bytes_per_value)
      .def_property_readonly("value_limit",
                             [](const Parameters& self) { return self.facts().fixed_point().value_limit(); })
      .def_property_readonly("weight_step",
                             [](const Parameters& self) { return self.facts().fixed_point().weight_step(); })
      .def_property_readonly("failure_bits", &Parameters::failure_bits)
      .def_property_readonly_static("security_bits", [](const py::object&) { return rlwe::kSecurityBits; });
}

void bind_keys(py::module_& module) {
  py::class_<PublicKey, std::shared_ptr<PublicKey>>(module, "KahePublicKey")
      .def(py::init([](const std::shared_ptr<Parameters>& parameters, const py::buffer& manifest,
                       const py::buffer& authority, std::uint32_t epoch) {
        const auto digest = fixed<Digest>(manifest, "the digest of a manifest");
        const auto id = fixed<Id>(authority, "an authority's id");
        const ReleasedInterpreter release;
        return std::make_shared<PublicKey>(parameters, digest, id, epoch);
      }))
      .def_static("from_bytes",
                  [](const py::buffer& frame) {
                    const auto info = frame.request();
                    const auto bytes = view(info);
                    const ReleasedInterpreter release;
                    return std::const_pointer_cast<PublicKey>(PublicKey::from_frame(bytes));
                  })
      .def("to_bytes", [](const PublicKey& self) { return to_bytes(self.to_frame()); })
      .def_property_readonly("id", [](const PublicKey& self) { return to_bytes(self.id()); })
      .def_property_readonly("manifest", [](const PublicKey& self) { return to_bytes(self.manifest()); })
      .def_property_readonly("authority", [](const PublicKey& self) { return to_bytes(self.authority()); })
      .def_property_readonly("epoch", &PublicKey::epoch)
      .def_property_readonly("parameters", [](const PublicKey& self) {
        return std::const_pointer_cast<Parameters>(self.parameters());
      });
  py::class_<ClientKey>(module, "KaheClientKey")
      .def(py::init(
          [](const py::buffer& key_id, std::uint32_t client, std::uint64_t round, const py::buffer& secret) {
            return ClientKey(fixed<Id>(key_id, "a key id"), client, round, seed_of(secret));
          }))
      .def_static("of_session",
                  [](const py::buffer& long_term_secret, const py::buffer& key_id, std::uint32_t client) {
                    return ClientKey::of_session(seed_of(long_term_secret), fixed<Id>(key_id, "a key id"),
                                                 client);
                  })
      .def("advance_to", &ClientKey::advance_to)
      .def("export_secret", [](const ClientKey& self) { return to_bytearray(self.secret().bytes); })
      .def_property_readonly("key_id", [](const ClientKey& self) { return to_bytes(self.key_id()); })
      .def_property_readonly("client", &ClientKey::client)
      .def_property_readonly("round", &ClientKey::round);
}

void bind_encryptor(py::module_& module) {
  py::class_<kahe::Encryptor> encryptor(module, "KaheEncryptor");
  encryptor.def(py::init([](const std::shared_ptr<PublicKey>& key) { return kahe::Encryptor(key); }));
  const auto bind_encrypt = [&encryptor]<typename T>(T) {
    encryptor.def(
        "encrypt",
        [](const kahe::Encryptor& self, const ClientKey& client_key, const Array<T>& values,
           const mask::Bitset* mask, std::optional<double> weight, const py::buffer& purpose,
           std::uint32_t part, bool clip, std::size_t threads) {
          const auto in = view(values);
          const kahe::EncryptOptions options{fixed<Id>(purpose, "a purpose's id"), part, weight, clip,
                                             threads};
          const NewBytes frame(self.frame_bytes(in.size(), mask, weight.has_value()));
          const ClientKey key = client_key;  // another thread may advance it meanwhile
          scheme::ValueCounts counts;
          {
            const ReleasedInterpreter release;
            SystemSeedSource seeds;
            counts = self.encrypt(key, in, mask, options, seeds, frame.memory);
          }
          return py::make_tuple(frame.object, tuple_of(counts));
        },
        py::arg("client_key"), py::arg("values").noconvert(), py::arg("mask").none(true),
        py::arg("weight").none(true), py::arg("purpose"), py::arg("part"), py::arg("clip"),
        py::arg("threads"));
  };
  bind_encrypt(float{});
  bind_encrypt(double{});
}

void bind_ciphertexts(py::module_& module) {
  using Frame = CiphertextFrame<CiphertextView>;
  bind_ciphertext<CiphertextView>(module, "KaheCiphertext")
      .def_static(
          "batch",
          [](py::bytes frame, std::size_t threads) {
            return Frame(std::move(frame), FrameKind::kKaheBatch, threads);
          },
          py::arg("frame"), py::arg("threads") = 0)
      .def_static(
          "total",
          [](py::bytes frame, std::size_t threads) {
            return Frame(std::move(frame), FrameKind::kKaheTotal, threads);
          },
          py::arg("frame"), py::arg("threads") = 0)
      .def_property_readonly("facts", [](const Frame& self) { return facts_of(self.view.head.facts); })
      .def_property_readonly("purpose", [](const Frame& self) { return to_bytes(self.view.head.purpose); })
      .def_property_readonly("part", [](const Frame& self) { return self.view.head.part; })
      .def_property_readonly("participants",
                             [](const Frame& self) { return participants_of(self.view.head); })
      .def_property_readonly("ciphertexts", [](const Frame& self) {
        return kahe::block_count(self.view.head.facts, self.view.head.layout);
      });
  bind_aggregator<kahe::Aggregator, CiphertextView>(module, "KaheAggregator")
      .def(py::init([](const std::shared_ptr<PublicKey>& key, const py::buffer& purpose, std::uint32_t part,
                       std::optional<std::uint64_t> round, const mask::Bitset* positions,
                       std::optional<bool> weighted, std::size_t threads) {
             return std::make_unique<kahe::Aggregator>(key, fixed<Id>(purpose, "a purpose's id"), part,
                                                       expected_of(round, positions, weighted), threads);
           }),
           py::arg("key"), py::arg("purpose"), py::arg("part"), py::arg("round").none(true),
           py::arg("positions").none(true), py::arg("weighted").none(true), py::arg("threads"));
}

void bind_opening(py::module_& module) {
  using Frame = CiphertextFrame<CiphertextView>;
  py::class_<SumRequest>(module, "KaheSumRequest")
      .def(py::init([](const Frame& total, const py::buffer& total_digest) {
        return SumRequest::of_total(total.view, fixed<Digest>(total_digest, "the digest of a total"));
      }))
      .def_static("from_bytes",
                  [](const py::buffer& frame) {
                    const auto info = frame.request();
                    return SumRequest::from_frame(view(info));
                  })
      .def("to_bytes", [](const SumRequest& self) { return to_bytes(self.to_frame()); })
      .def_property_readonly("key_id",
                             [](const SumRequest& self) { return to_bytes(self.head.layout.key_id); })
      .def_property_readonly("round", [](const SumRequest& self) { return self.head.layout.round; })
      .def_property_readonly("count", [](const SumRequest& self) { return self.head.layout.value_count; })
      .def_property_readonly("mask_id",
                             [](const SumRequest& self) { return to_bytes(self.head.layout.mask_id); })
      .def_property_readonly("weighted", [](const SumRequest& self) { return self.head.layout.weighted; })
      .def_property_readonly("purpose", [](const SumRequest& self) { return to_bytes(self.head.purpose); })
      .def_property_readonly("part", [](const SumRequest& self) { return self.head.part; })
      .def_property_readonly("participants",
                             [](const SumRequest& self) { return participants_of(self.head); })
      .def_property_readonly("total_digest",
                             [](const SumRequest& self) { return to_bytes(self.total_digest); });
  module.def(
      "kahe_sum_key",
      [](const std::shared_ptr<PublicKey>& key, const SumRequest& request, const std::vector<ClientKey>& keys,
         std::size_t threads) {
        SecretVector<std::uint8_t> frame;
        {
          const ReleasedInterpreter release;
          frame = SumKey::of_request(*key, request, keys, threads).to_frame();
        }
        return to_bytearray(frame);
      },
      py::arg("key"), py::arg("request"), py::arg("client_keys"), py::arg("threads"));
  module.def(
      "kahe_open",
      [](const std::shared_ptr<PublicKey>& key, const Frame& total, const py::buffer& total_digest,
         const py::buffer& sum_key, std::size_t threads) {
        const auto digest = fixed<Digest>(total_digest, "the digest of a total");
        const auto info = sum_key.request();
        const auto bytes = view(info);
        auto opened = [&] {
          const ReleasedInterpreter release;
          return kahe::open(*key, total.view, digest, SumKey::from_frame(bytes), threads);
        }();
        return py::make_tuple(to_array(std::move(opened.values)), opened.weight_sum);
      },
      py::arg("key"), py::arg("total"), py::arg("total_digest"), py::arg("sum_key"), py::arg("threads"));
}

}  // namespace

void bind_kahe(py::module_& module) {
  bind_parameters(module);
  bind_keys(module);
  bind_encryptor(module);
  bind_ciphertexts(module);
  bind_opening(module);
}

}  // namespace shieldfl::bindings
