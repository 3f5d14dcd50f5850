// Finds the smallest ring that has room for what is asked.
#pragma once

#include <cstdint>
#include <optional>

#include "ckks/parameters.h"

namespace shieldfl::ckks {

// One value more per coefficient is always the better use of room: the scale above the noise is paid once.
// Precondition: the request's ranges have been checked. Empty when no ring has room.
std::optional<ParameterFacts> search_parameters(const ParameterRequest& request);

}  // namespace shieldfl::ckks
