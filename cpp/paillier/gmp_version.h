#pragma once

namespace shieldfl::paillier {

// The version of the GMP that is loaded, such as "6.2.1".
const char* loaded_gmp_version();

}  // namespace shieldfl::paillier
