#include "bindings/bind_enrolled.h"

#include "bindings/bind_areas.h"

namespace shieldfl::bindings {
namespace {

using enrolled::ClientKey;

Seed seed_of(const py::buffer& secret) {
  Seed seed;
  auto bytes = fixed<Digest>(secret, "a client's secret");
  seed.bytes = bytes;
  secure_wipe(bytes.data(), bytes.size());
  return seed;
}

// Written as the module is loaded, and only read from then on.
std::vector<std::string_view>& schemes_of_keys() {
  static std::vector<std::string_view> names;
  return names;
}

// The name of a scheme as a literal, which keys refer to. Throws Error(kParameter) for another one.
std::string_view scheme_name(std::string_view name) {
  for (const std::string_view known : schemes_of_keys()) {
    if (name == known) return known;
  }
  throw Error(ErrorCode::kParameter, "clients of scheme '" + std::string(name) + "' have no keys");
}

}  // namespace

void add_scheme_of_keys(std::string_view name) {
  schemes_of_keys().push_back(name);
}

void bind_client_keys(py::module_& module) {
  py::class_<ClientKey>(module, "ClientKey")
      .def(py::init([](std::string_view scheme, const py::buffer& key_id, std::uint32_t client,
                       std::uint64_t round, const py::buffer& secret) {
        return ClientKey(scheme_name(scheme), fixed<Id>(key_id, "a key id"), client, round, seed_of(secret));
      }))
      .def_static("of_session",
                  [](std::string_view scheme, const py::buffer& long_term_secret, const py::buffer& key_id,
                     std::uint32_t client) {
                    return ClientKey::of_session(scheme_name(scheme), seed_of(long_term_secret),
                                                 fixed<Id>(key_id, "a key id"), client);
                  })
      .def("advance_to", &ClientKey::advance_to)
      .def_static(
          "advance_all",
          [](std::string_view scheme, Array<std::uint64_t> rounds, Array<std::uint8_t> secrets,
             std::uint64_t round) {
            const auto to_rounds = mutable_view(rounds);
            const auto to_secrets = mutable_view(secrets);
            const std::string_view known = scheme_name(scheme);
            const ReleasedInterpreter release;
            enrolled::advance_all(known, to_rounds, to_secrets, round);
          },
          py::arg("scheme"), py::arg("rounds").noconvert(), py::arg("secrets").noconvert(), py::arg("round"))
      .def("export_secret", [](const ClientKey& self) { return to_bytearray(self.secret().bytes); })
      .def_property_readonly("key_id", [](const ClientKey& self) { return to_bytes(self.key_id()); })
      .def_property_readonly("client", &ClientKey::client)
      .def_property_readonly("round", &ClientKey::round)
      // Of one client, for a session.
      .def_property_readonly_static("most_authorities",
                                    [](const py::object&) { return enrolled::kMaxAuthorities; });
}

}  // namespace shieldfl::bindings
