#include "paillier/gmp_version.h"

#include <gmp.h>

namespace shieldfl::paillier {

const char* loaded_gmp_version() {
  return ::gmp_version;
}

}  // namespace shieldfl::paillier
