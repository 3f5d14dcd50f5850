#include "tests/check.h"

int main() {
  return shieldfl::tests::run_all();
}
