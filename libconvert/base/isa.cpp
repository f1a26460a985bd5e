#include "base/isa.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string>

namespace prepack {
namespace {

struct IsaRow {
  Isa isa;
  std::string_view name;
  bool (*supported)();
};

// kAvx2 stands for AVX2 and FMA: no CPU to speak of has one without the other.
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

constexpr std::array kIsas = {
    IsaRow{Isa::kScalar, "scalar", [] { return true; }},
    IsaRow{Isa::kAvx2, "avx2", HasAvx2},
};

}  // namespace

std::string_view IsaName(Isa isa) {
  return kIsas[static_cast<size_t>(isa)].name;
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (const IsaRow& row : kIsas) {
    if (row.supported()) isas.push_back(row.isa);
  }
  return isas;
}

Result<Isa> ChooseIsa() {
  const char* wanted = std::getenv("PREPACK_ISA");  // NOLINT(concurrency-mt-unsafe)
  if (wanted == nullptr || *wanted == '\0') return SupportedIsas().back();
  for (const IsaRow& row : kIsas) {
    if (row.name != wanted) continue;
    if (row.supported()) return row.isa;
    return Unavailable("PREPACK_ISA", fmt::format("this CPU has no {}", row.name))
        .Hint("Unset the variable to use the best instruction set that is here");
  }
  return Usage("PREPACK_ISA", "unknown instruction set").Found(wanted).Expected("scalar or avx2");
}

}  // namespace prepack
