// Other random words of which the same proposals are rejected: the trace compares runs of which one sees
// these.
#pragma once

namespace shieldfl::tests {

// From now on, whether the words of every pair in a random stream change places. Words a and b propose the
// ternary samples a_i - b_i and reject where both bits are 1, so that all samples change their sign. Error
// samples become others.
void exchange_words(bool exchange);

}  // namespace shieldfl::tests
