// What is bound alike for schemes in which each client has a key of its own with the key authority.
#pragma once

#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bind_scheme.h"
#include "enrolled/encryptor.h"
#include "enrolled/sum_key_head.h"

namespace shieldfl::bindings {

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

template <typename Head>
py::list participants_of(const Head& head) {
  py::list list;
  for (const enrolled::Participant& one : head.participants) {
    list.append(py::make_tuple(one.client, to_bytes(one.frame_id)));
  }
  return list;
}

template <typename Bound>
void bind_public_key(py::module_& module, const std::string& prefix) {
  using PublicKey = typename Bound::PublicKey;
  using Parameters = typename PublicKey::Scheme::Parameters;
  py::class_<PublicKey, std::shared_ptr<PublicKey>>(module, (prefix + "PublicKey").c_str())
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
}

template <typename Bound>
void bind_encryptor(py::module_& module, const std::string& prefix) {
  using Encryptor = typename Bound::Encryptor;
  py::class_<Encryptor> encryptor(module, (prefix + "Encryptor").c_str());
  encryptor.def(
      py::init([](const std::shared_ptr<typename Bound::PublicKey>& key) { return Encryptor(key); }));
  const auto bind_encrypt = [&encryptor]<typename T>(T) {
    encryptor.def(
        "encrypt",
        // The keys are copies: another thread may move the client's own on meanwhile, and what is refused
        // here does not.
        [](const Encryptor& self, std::vector<enrolled::ClientKey> client_keys, const Pieces<T>& pieces,
           const mask::Bitset* mask, std::optional<double> weight, std::uint64_t round,
           const py::buffer& purpose, std::uint32_t part, bool clip, std::size_t threads) {
          const auto in = view(pieces);
          const enrolled::EncryptOptions options{fixed<Id>(purpose, "a purpose's id"), part, weight, clip,
                                                 threads};
          const NewBytes frame(self.frame_bytes(in.size(), mask, weight.has_value()));
          for (enrolled::ClientKey& key : client_keys) key.advance_to(round);
          scheme::ValueCounts counts;
          {
            const ReleasedInterpreter release;
            SystemSeedSource seeds;
            counts = self.encrypt(client_keys, in, mask, options, seeds, frame.memory);
          }
          return py::make_tuple(frame.object, tuple_of(counts));
        },
        py::arg("client_keys"), py::arg("pieces").noconvert(), py::arg("mask").none(true),
        py::arg("weight").none(true), py::arg("round"), py::arg("purpose"), py::arg("part"), py::arg("clip"),
        py::arg("threads"));
  };
  bind_encrypt(float{});
  bind_encrypt(double{});
}

template <typename Bound>
void bind_sums(py::module_& module, const std::string& prefix) {
  using View = typename Bound::CiphertextView;
  using Frame = CiphertextFrame<View>;
  using Aggregator = typename Bound::Aggregator;
  using PublicKey = typename Bound::PublicKey;
  using SumKey = typename Bound::SumKey;
  using Scheme = typename View::Scheme;
  bind_ciphertext<View>(module, (prefix + "Ciphertext").c_str())
      .def_static(
          "batch",
          [](py::bytes frame, std::size_t threads) {
            return Frame(std::move(frame), Scheme::kKinds.batch, threads);
          },
          py::arg("frame"), py::arg("threads") = 0)
      .def_static(
          "total",
          [](py::bytes frame, std::size_t threads) {
            return Frame(std::move(frame), Scheme::kKinds.total, threads);
          },
          py::arg("frame"), py::arg("threads") = 0)
      .def_property_readonly("facts", [](const Frame& self) { return Bound::facts(self.view.head.facts); })
      .def_property_readonly("purpose", [](const Frame& self) { return to_bytes(self.view.head.purpose); })
      .def_property_readonly("part", [](const Frame& self) { return self.view.head.part; })
      .def_property_readonly("participants",
                             [](const Frame& self) { return participants_of(self.view.head); })
      .def_property_readonly("ciphertexts", [](const Frame& self) { return self.view.head.block_count(); })
      .def(
          "open",
          [](const Frame& self, const std::shared_ptr<PublicKey>& key, const py::buffer& total_digest,
             const std::vector<py::buffer>& sum_keys, std::size_t threads) {
            const auto digest = fixed<Digest>(total_digest, "the digest of a total");
            std::vector<SumKey> keys;
            for (const py::buffer& one : sum_keys) {
              const auto info = one.request();
              const auto bytes = view(info);
              const ReleasedInterpreter release;
              keys.push_back(SumKey::from_frame(bytes));
            }
            // NumPy leaves new memory as it is, which saves writing it twice; the sums are all but a weight.
            const auto& layout = self.view.head.layout;
            Array<double> fields(static_cast<py::ssize_t>(layout.field_count()));
            const auto out = mutable_view(fields);
            prefer_huge_pages(out.data(), out.size_bytes());
            const auto weight_sum = [&] {
              const ReleasedInterpreter release;
              return open_into(out, *key, self.view, digest, keys, threads);
            }();
            const auto count = static_cast<py::ssize_t>(layout.value_count);
            const py::object sums = weight_sum ? py::object(fields[py::slice(0, count, 1)]) : fields;
            return py::make_tuple(sums, weight_sum);
          },
          py::arg("key"), py::arg("total_digest"), py::arg("sum_keys"), py::arg("threads"));
  bind_aggregator<Aggregator, View, std::optional<std::uint32_t>>(module, (prefix + "Aggregator").c_str())
      .def(py::init([](const std::shared_ptr<typename Bound::PublicKey>& key, const py::buffer& purpose,
                       std::uint32_t part, std::optional<std::uint64_t> round, const mask::Bitset* positions,
                       std::optional<bool> weighted, std::size_t threads) {
             return std::make_unique<Aggregator>(key, fixed<Id>(purpose, "a purpose's id"), part,
                                                 expected_of(round, positions, weighted), threads);
           }),
           py::arg("key"), py::arg("purpose"), py::arg("part"), py::arg("round").none(true),
           py::arg("positions").none(true), py::arg("weighted").none(true), py::arg("threads"));
}

template <typename Bound>
void bind_opening(py::module_& module, const std::string& prefix) {
  using PublicKey = typename Bound::PublicKey;
  using SumRequest = typename Bound::SumRequest;
  using SumKey = typename Bound::SumKey;
  using Frame = CiphertextFrame<typename Bound::CiphertextView>;
  py::class_<SumRequest>(module, (prefix + "SumRequest").c_str())
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
                             [](const SumRequest& self) { return to_bytes(self.total_digest); })
      .def(
          "sum_key",
          [](const SumRequest& self, const std::shared_ptr<PublicKey>& key,
             const std::vector<enrolled::ClientKey>& keys, std::size_t threads) {
            SecretVector<std::uint8_t> frame;
            {
              const ReleasedInterpreter release;
              frame = SumKey::of_request(*key, self, keys, threads).to_frame();
            }
            return to_bytearray(frame);
          },
          py::arg("key"), py::arg("client_keys"), py::arg("threads"))
      .def(
          "sum_key_of_stored",
          [](const SumRequest& self, const std::shared_ptr<PublicKey>& key,
             const Array<std::uint64_t>& clients, const Array<std::uint64_t>& rounds,
             const Array<std::uint8_t>& secrets, std::size_t threads) {
            SecretVector<std::uint8_t> frame;
            const auto numbers = view(clients);
            const auto at = view(rounds);
            const auto bytes = view(secrets);
            {
              const ReleasedInterpreter release;
              const auto keys = enrolled::keys_of(PublicKey::Scheme::kName, key->id(), numbers, at, bytes);
              frame = SumKey::of_request(*key, self, keys, threads).to_frame();
            }
            return to_bytearray(frame);
          },
          py::arg("key"), py::arg("clients").noconvert(), py::arg("rounds").noconvert(),
          py::arg("secrets").noconvert(), py::arg("threads"))
      .def_static(
          "head_of_sum_key",
          [](const py::buffer& frame) {
            const auto info = frame.request();
            const enrolled::SumKeyHead head = SumKey::head_of(view(info));
            py::dict dict;
            dict["clients"] = head.clients;
            dict["unit"] = head.unit;
            dict["count"] = head.count;
            dict["total_digest"] = to_bytes(head.total_digest);
            return dict;
          },
          py::arg("frame"));
}

// Makes the name of a scheme, a literal, one that clients' keys may be of.
void add_scheme_of_keys(std::string_view name);

// Everything but the parameters. `Bound` names a scheme's types, and facts(), what Python gets of its
// parameters.
template <typename Bound>
void bind_enrolled(py::module_& module, const std::string& prefix) {
  add_scheme_of_keys(Bound::PublicKey::Scheme::kName);
  bind_public_key<Bound>(module, prefix);
  bind_encryptor<Bound>(module, prefix);
  bind_sums<Bound>(module, prefix);
  bind_opening<Bound>(module, prefix);
}

}  // namespace shieldfl::bindings
