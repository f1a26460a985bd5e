#include "prepack/base/isa.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdlib>

namespace prepack {
namespace {

struct IsaRow {
  Isa isa;
  std::string_view name;
};

constexpr std::array kIsas = {
    IsaRow{Isa::kScalar, "scalar"}, IsaRow{Isa::kAvx2, "avx2"},
    IsaRow{Isa::kAvx512, "avx512"}, IsaRow{Isa::kAvx512Vbmi, "avx512vbmi"},
    IsaRow{Isa::kNeon, "neon"},
};

// The Isa of the innermost ScopedIsa, or kNoScope. Threads that start within the scope see it.
constexpr int kNoScope = -1;
std::atomic<int> scoped_isa = kNoScope;

}  // namespace

std::string_view IsaName(Isa isa) {
  return kIsas[static_cast<size_t>(isa)].name;
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (const IsaRow& row : kIsas) {
    if (CpuSupports(row.isa)) isas.push_back(row.isa);
  }
  return isas;
}

Result<Isa> ChooseIsa() {
  const char* wanted = std::getenv("PREPACK_ISA");  // NOLINT(concurrency-mt-unsafe)
  if (wanted == nullptr || *wanted == '\0') return SupportedIsas().back();
  for (const IsaRow& row : kIsas) {
    if (row.name != wanted) continue;
    if (CpuSupports(row.isa)) return row.isa;
    return Unavailable("PREPACK_ISA", fmt::format("this CPU has no {}", row.name))
        .Hint("Unset the variable to use the best instruction set of this CPU");
  }
  return Usage("PREPACK_ISA", "unknown instruction set")
      .Found(wanted)
      .Expected("scalar, avx2, avx512, avx512vbmi or neon");
}

Isa ProcessIsa() {
  const int scoped = scoped_isa.load(std::memory_order_relaxed);
  if (scoped != kNoScope) return static_cast<Isa>(scoped);
  static const Isa isa = [] {
    const Result<Isa> chosen = ChooseIsa();
    return chosen.ok() ? *chosen : Isa::kScalar;
  }();
  return isa;
}

ScopedIsa::ScopedIsa(Isa isa) : before_(scoped_isa.exchange(static_cast<int>(isa))) {}

ScopedIsa::~ScopedIsa() {
  scoped_isa = before_;
}

}  // namespace prepack
