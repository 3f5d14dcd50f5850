#include <memory>

#include "bindings/bind_areas.h"
#include "bindings/bind_scheme.h"
#include "common/cpu_features.h"
#include "paillier/aggregator.h"
#include "paillier/decryptor.h"
#include "paillier/encryptor.h"
#include "paillier/gmp_version.h"
#include "paillier/randomizer_pool.h"
#include "paillier/union_order.h"

namespace shieldfl::bindings {
namespace paillier_bindings {
namespace {

using paillier::CiphertextView;
using paillier::EngineKind;
using paillier::Packing;
using paillier::Parameters;
using paillier::PublicKey;
using paillier::Randomizer;
using paillier::RandomizerPool;
using paillier::UnionOrder;
using Frame = CiphertextFrame<CiphertextView>;
using Release = py::call_guard<ReleasedInterpreter>;

constexpr Names<Packing, 2> kPackings = {{{"dense", Packing::kDense}, {"single", Packing::kSingle}}};
constexpr Names<Randomizer, 2> kRandomizers = {
    {{"classical", Randomizer::kClassical}, {"short-exponent", Randomizer::kShortExponent}}};

EngineKind fastest_engine() {
  return paillier::engine_for(instruction_set());
}

py::dict facts_of(const Parameters& parameters) {
  const paillier::ParameterFacts& facts = parameters.facts();
  py::dict dict;
  dict["key_bits"] = facts.key_bits;
  dict["packing"] = name_of(facts.packing, kPackings);
  dict["max_clients"] = facts.max_clients;
  dict["value_bits"] = facts.value_bits;
  dict["fraction_bits"] = facts.fraction_bits;
  dict["max_weight"] = facts.max_weight;
  dict["randomizer"] = name_of(facts.randomizer, kRandomizers);
  dict["spare_bits"] = facts.spare_bits;
  dict["guard_bits"] = parameters.guard_bits();
  dict["values_per_ciphertext"] = parameters.values_per_ciphertext();
  dict["ciphertext_bytes"] = parameters.ciphertext_bytes();
  dict["exponent_bits"] = parameters.exponent_bits();
  return dict;
}

void bind_parameters(py::module_& module) {
  py::class_<Parameters, std::shared_ptr<Parameters>>(module, "PaillierParameters")
      .def(py::init([](std::uint16_t key_bits, const std::string& packing, std::uint32_t max_clients,
                       std::uint8_t value_bits, std::uint8_t fraction_bits, std::uint32_t max_weight,
                       const std::string& randomizer, std::uint8_t spare_bits) {
             return std::make_shared<Parameters>(
                 paillier::ParameterFacts{.key_bits = key_bits,
                                          .packing = value_of(packing, kPackings),
                                          .randomizer = value_of(randomizer, kRandomizers),
                                          .value_bits = value_bits,
                                          .fraction_bits = fraction_bits,
                                          .max_clients = max_clients,
                                          .max_weight = max_weight,
                                          .spare_bits = spare_bits});
           }),
           py::kw_only(), py::arg("key_bits"), py::arg("packing"), py::arg("max_clients"),
           py::arg("value_bits"), py::arg("fraction_bits"), py::arg("max_weight"), py::arg("randomizer"),
           py::arg("spare_bits") = paillier::kSpareBits)
      .def_property_readonly("id", [](const Parameters& self) { return to_bytes(self.id()); })
      .def_property_readonly("facts", &facts_of)
      .def_property_readonly("bytes_per_value", &Parameters::bytes_per_value)
      .def_property_readonly("value_limit",
                             [](const Parameters& self) { return self.fixed_point().value_limit(); })
      .def_property_readonly("weight_step",
                             [](const Parameters& self) { return self.fixed_point().weight_step(); })
      .def_property_readonly("security_bits", &Parameters::security_bits);
}

void bind_keys(py::module_& module) {
  py::class_<PublicKey, std::shared_ptr<PublicKey>>(module, "PaillierPublicKey")
      .def_static(
          "from_bytes",
          [](const py::buffer& frame, const std::optional<std::string>& engine) {
            const EngineKind kind = engine ? paillier::engine_named(*engine) : fastest_engine();
            const auto info = frame.request();
            const auto bytes = view(info);
            const ReleasedInterpreter release;
            return std::const_pointer_cast<PublicKey>(PublicKey::from_frame(bytes, kind));
          },
          py::arg("frame"), py::arg("engine") = std::nullopt)
      .def("to_bytes", [](const PublicKey& self) { return to_bytes(self.to_frame()); })
      .def_property_readonly("id", [](const PublicKey& self) { return to_bytes(self.id()); })
      .def_property_readonly("parameters", &PublicKey::parameters, py::return_value_policy::copy)
      .def_property_readonly("engine",
                             [](const PublicKey& self) { return engine_name(self.engine().kind()); });
}

void bind_union_order(py::module_& module) {
  py::class_<UnionOrder>(module, "UnionOrder")
      .def_static(
          "from_masks",
          [](const std::vector<std::reference_wrapper<const mask::Bitset>>& masks, std::size_t threads) {
            const ReleasedInterpreter release;
            std::vector<const mask::Bitset*> pointers;
            for (const mask::Bitset& mask : masks) pointers.push_back(&mask);
            return UnionOrder::from_masks(pointers, threads);
          })
      .def_static(
          "from_bytes",
          [](const py::buffer& frame, std::optional<std::uint64_t> expected_size) {
            const auto info = frame.request();
            const auto bytes = view(info);
            const ReleasedInterpreter release;
            return UnionOrder::from_frame(bytes, expected_size);
          },
          py::arg("frame"), py::arg("expected_size") = std::nullopt)
      .def("to_bytes", [](const UnionOrder& self) { return to_bytes(self.to_frame()); })
      .def_property_readonly("size", &UnionOrder::size)
      .def_property_readonly("id", [](const UnionOrder& self) { return to_bytes(self.id()); })
      .def_property_readonly("positions", [](const py::object& self) {
        const auto positions = self.cast<const UnionOrder&>().positions();
        py::array_t<std::uint32_t> array(static_cast<py::ssize_t>(positions.size()), positions.data(), self);
        array.attr("setflags")(py::arg("write") = false);
        return array;
      });
}

// A pool that goes waits for its threads, which may take as long as a key's table.
struct DeleteWithoutInterpreter {
  void operator()(RandomizerPool* pool) const {
    const ReleasedInterpreter release;
    delete pool;
  }
};

void bind_randomizer_pool(py::module_& module) {
  using Holder = std::unique_ptr<RandomizerPool, DeleteWithoutInterpreter>;
  py::class_<RandomizerPool, Holder>(module, "PaillierRandomizerPool")
      .def(py::init([](const std::shared_ptr<PublicKey>& key) { return Holder(new RandomizerPool(key)); }))
      .def("precompute", &RandomizerPool::precompute, py::arg("count"), py::arg("threads"),
           py::arg("lookups_vartime"), Release())
      .def("wait", &RandomizerPool::wait, Release())
      .def_property_readonly("available", py::cpp_function(&RandomizerPool::available, Release()));
}

template <typename T>
void bind_encrypt(py::class_<paillier::Encryptor>& encryptor) {
  encryptor.def(
      "encrypt",
      [](const paillier::Encryptor& self, const Pieces<T>& pieces, const mask::Bitset* mask,
         std::optional<double> weight, std::uint64_t round, bool clip, std::size_t threads,
         bool lookups_vartime, RandomizerPool* pool) {
        const auto in = view(pieces);
        const NewBytes frame(self.frame_bytes(in.size(), mask, weight.has_value()));
        scheme::ValueCounts counts;
        {
          const ReleasedInterpreter release;
          SystemSeedSource seeds;
          counts = self.encrypt(in, mask, {round, weight, clip, threads, lookups_vartime}, seeds, pool,
                                frame.memory);
        }
        return py::make_tuple(frame.object, tuple_of(counts));
      },
      py::arg("pieces").noconvert(), py::arg("mask").none(true), py::arg("weight").none(true),
      py::arg("round"), py::arg("clip"), py::arg("threads"), py::arg("lookups_vartime") = false,
      py::arg("pool").none(true) = nullptr);
  encryptor.def(
      "encrypt_in_union",
      [](const paillier::Encryptor& self, const Array<T>& values, const UnionOrder& order,
         const mask::Bitset& mask, std::uint64_t round, bool clip, std::size_t threads, bool lookups_vartime,
         RandomizerPool* pool) {
        const auto in = view(values);
        const std::size_t bytes = [&] {
          const ReleasedInterpreter release;
          return self.union_frame_bytes(order, mask);
        }();
        const NewBytes frame(bytes);
        scheme::ValueCounts counts;
        {
          const ReleasedInterpreter release;
          SystemSeedSource seeds;
          counts =
              self.encrypt_in_union(in, order, mask, {round, std::nullopt, clip, threads, lookups_vartime},
                                    seeds, pool, frame.memory);
        }
        return py::make_tuple(frame.object, tuple_of(counts));
      },
      py::arg("values").noconvert(), py::arg("order"), py::arg("mask"), py::arg("round"), py::arg("clip"),
      py::arg("threads"), py::arg("lookups_vartime") = false, py::arg("pool").none(true) = nullptr);
}

void bind_encryptor(py::module_& module) {
  py::class_<paillier::Encryptor> encryptor(module, "PaillierEncryptor");
  encryptor.def(py::init(
      [](const std::shared_ptr<PublicKey>& key) { return std::make_unique<paillier::Encryptor>(key); }));
  bind_encrypt<float>(encryptor);
  bind_encrypt<double>(encryptor);
}

void bind_ciphertexts(py::module_& module) {
  bind_ciphertext<CiphertextView>(module, "PaillierCiphertext")
      .def_static("batch", [](py::bytes frame) { return Frame(std::move(frame), FrameKind::kPaillierBatch); })
      .def_static("total", [](py::bytes frame) { return Frame(std::move(frame), FrameKind::kPaillierTotal); })
      .def_property_readonly("parameters", [](const Frame& self) { return self.view.parameters; })
      .def_property_readonly(
          "ciphertexts",
          [](const Frame& self) { return paillier::block_count(self.view.parameters, self.view.layout); })
      .def_property_readonly("present_ciphertexts",
                             [](const Frame& self) { return self.view.present_count(); })
      .def_property_readonly("total_weight", [](const Frame& self) { return self.view.total_weight; });
}

template <typename T>
void bind_mixed(py::class_<paillier::Aggregator>& aggregator) {
  aggregator.def(
      "add_parsed_mixed",
      [](paillier::Aggregator& self, const Frame& batch, const Array<T>& clear, std::uint32_t weight) {
        const auto fields = view(clear);
        const ReleasedInterpreter release;
        self.add_mixed<T>(batch.view, fields, weight);
      },
      py::arg("batch"), py::arg("clear").noconvert(), py::arg("weight"));
  aggregator.def(
      "add_bytes_mixed",
      [](paillier::Aggregator& self, const py::buffer& frame, const Array<T>& clear, std::uint32_t weight) {
        const auto info = frame.request();
        const auto bytes = view(info);
        const auto fields = view(clear);
        const ReleasedInterpreter release;
        self.add_mixed<T>(bytes, fields, weight);
      },
      py::arg("frame"), py::arg("clear").noconvert(), py::arg("weight"));
}

}  // namespace
}  // namespace paillier_bindings

void bind_paillier(py::module_& module) {
  using namespace paillier_bindings;
  module.def("gmp_version", &paillier::loaded_gmp_version);
  module.def("paillier_engine", [] { return engine_name(fastest_engine()); });
  bind_parameters(module);
  bind_keys(module);
  bind_union_order(module);
  bind_randomizer_pool(module);
  bind_encryptor(module);
  bind_ciphertexts(module);
  auto aggregator =
      bind_aggregator<paillier::Aggregator, CiphertextView, std::uint32_t>(module, "PaillierAggregator");
  aggregator.def(py::init([](const std::shared_ptr<PublicKey>& key, std::optional<std::uint64_t> round,
                             std::size_t threads, const UnionOrder* order) {
    return std::make_unique<paillier::Aggregator>(key, round, threads, order);
  }));
  bind_mixed<float>(aggregator);
  bind_mixed<double>(aggregator);
  bind_decryptor<Parameters, paillier::KeyPair, CiphertextView>(
      module, "PaillierDecryptor",
      [](const std::shared_ptr<Parameters>& parameters, SeedSource& seeds) {
        return paillier::generate_keys(*parameters, seeds, fastest_engine());
      },
      [](const paillier::KeyPair& keys, const CiphertextView& total, std::size_t threads) {
        return paillier::Decryptor(keys.public_key, keys.secret_key).open(total, threads);
      });
}

}  // namespace shieldfl::bindings
