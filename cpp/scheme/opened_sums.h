// What a total opens to, whatever the scheme.
#pragma once

#include <optional>
#include <vector>

namespace shieldfl::scheme {

struct OpenedSums {
  std::vector<double> values;        // in the order of the layout: ascending positions, or a union's order
  std::optional<double> weight_sum;  // of encrypted weights
};

}  // namespace shieldfl::scheme
