#include "paillier/engine.h"

#include "common/error.h"
#include "common/taint.h"
#include "paillier/gmp_engine.h"
#include "paillier/ifma_engine.h"

namespace shieldfl::paillier {

const char* engine_name(EngineKind kind) {
  return kind == EngineKind::kIfma ? "ifma" : "gmp";
}

EngineKind engine_named(std::string_view name) {
  for (const EngineKind kind : {EngineKind::kGmp, EngineKind::kIfma}) {
    if (name == engine_name(kind)) return kind;
  }
  throw Error(ErrorCode::kParameter, "the engine must be gmp or ifma");
}

EngineKind engine_for(InstructionSet set) {
  return set == InstructionSet::kAvx512 ? EngineKind::kIfma : EngineKind::kGmp;
}

std::shared_ptr<const Engine> Engine::make(EngineKind kind, std::span<const std::uint64_t> modulus) {
  bool valid =
      modulus.size() >= 2 && ((modulus.front() & 1) & static_cast<unsigned>(modulus.back() != 0)) != 0;
  declassify(&valid, sizeof valid);  // every modulus that is used is valid
  if (!valid) {
    throw Error(ErrorCode::kParameter, "a modulus has to be odd and above 2^64, its top word not zero");
  }
  if (kind == EngineKind::kGmp) return std::make_shared<const GmpEngine>(modulus);
  if (auto engine = make_ifma_engine(modulus)) return engine;
  throw Error(ErrorCode::kParameter,
              "the engine \"ifma\" needs AVX-512: choose by engine_for(instruction_set())");
}

}  // namespace shieldfl::paillier
