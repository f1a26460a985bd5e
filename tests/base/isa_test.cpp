#include "prepack/base/isa.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "catch.h"
#include "prepack/base/cpu_features.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

// Sets PREPACK_ISA (or unsets it) and puts the old value back.
class IsaVariable {
 public:
  explicit IsaVariable(const char* value) {
    if (const char* old = std::getenv(kName)) old_ = old;  // NOLINT(concurrency-mt-unsafe)
    Set(value);
  }
  ~IsaVariable() { Set(old_ ? old_->c_str() : nullptr); }
  IsaVariable(const IsaVariable&) = delete;
  IsaVariable& operator=(const IsaVariable&) = delete;

 private:
  static constexpr const char* kName = "PREPACK_ISA";
  static void Set(const char* value) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe)
    value == nullptr ? unsetenv(kName) : setenv(kName, value, 1);
  }
  std::optional<std::string> old_;
};

#if defined(__x86_64__)

bool Has(const std::vector<Isa>& isas, Isa isa) {
  return std::find(isas.begin(), isas.end(), isa) != isas.end();
}

std::string FlagsOfThisCpu() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("flags")) return line.substr(line.find(':') + 1);
  }
  return "";
}

TEST_CASE("the CPU supports what the system says of it") {
  const std::string flags = FlagsOfThisCpu();
  REQUIRE_FALSE(flags.empty());
  const CpuFeatures features = CpuFeaturesOf(flags, "");
  CHECK(CpuSupports(Isa::kAvx2) == features.Has(CpuFeature::kAvx2));
  CHECK(CpuSupports(Isa::kAvx512) == features.Has(CpuFeature::kAvx512));
  CHECK(CpuSupports(Isa::kAvx512Vbmi) ==
        (features.Has(CpuFeature::kAvx512) && features.Has(CpuFeature::kVbmi)));
  CHECK_FALSE(CpuSupports(Isa::kNeon));
}

TEST_CASE("the levels of x86 are those that the compiler finds") {
  const std::vector<Isa> isas = SupportedIsas();
  CHECK(Has(isas, Isa::kAvx2) == (__builtin_cpu_supports("avx2") != 0));
  CHECK(Has(isas, Isa::kAvx512) == (__builtin_cpu_supports("avx512bw") != 0));
  CHECK(Has(isas, Isa::kAvx512Vbmi) == (__builtin_cpu_supports("avx512vbmi") != 0));
}

#elif defined(__aarch64__)

TEST_CASE("every Arm CPU has NEON and nothing of x86") {
  CHECK(SupportedIsas() == std::vector<Isa>{Isa::kScalar, Isa::kNeon});
}

#endif

TEST_CASE("scalar is always supported and comes first") {
  const std::vector<Isa> isas = SupportedIsas();
  REQUIRE_FALSE(isas.empty());
  CHECK(isas.front() == Isa::kScalar);
  CHECK(std::is_sorted(isas.begin(), isas.end()));
}

TEST_CASE("without PREPACK_ISA the best one is chosen") {
  const char* const value = GENERATE(static_cast<const char*>(nullptr), "");
  const IsaVariable variable(value);
  CHECK(Value(ChooseIsa()) == SupportedIsas().back());
}

TEST_CASE("PREPACK_ISA chooses any supported one by its name") {
  CHECK(IsaName(Isa::kScalar) == "scalar");
  CHECK(IsaName(Isa::kAvx2) == "avx2");
  CHECK(IsaName(Isa::kAvx512) == "avx512");
  CHECK(IsaName(Isa::kAvx512Vbmi) == "avx512vbmi");
  CHECK(IsaName(Isa::kNeon) == "neon");
  for (const Isa isa : SupportedIsas()) {
    const IsaVariable variable(std::string(IsaName(isa)).c_str());
    CHECK(Value(ChooseIsa()) == isa);
  }
}

TEST_CASE("an unknown PREPACK_ISA is refused, with what would do") {
  const IsaVariable variable("AVX2");
  const Result<Isa> isa = ChooseIsa();
  REQUIRE_FALSE(isa.ok());
  CHECK(isa.status().kind() == ErrorKind::kUsage);
  CHECK(isa.status().ToString() ==
        "PREPACK_ISA: unknown instruction set (found AVX2, expected scalar, avx2, "
        "avx512, avx512vbmi or neon)");
}

TEST_CASE("a hostile PREPACK_ISA is shown harmlessly") {
  const IsaVariable variable("\x1b[2Javx2\n");
  CheckError(ChooseIsa().status(), ErrorKind::kUsage, "found \\x1b[2Javx2\\x0a,");
}

TEST_CASE("an instruction set that this CPU lacks is unavailable, not replaced") {
  const bool arm = CpuSupports(Isa::kNeon);
  const IsaVariable variable(arm ? "avx2" : "neon");
  CheckError(ChooseIsa().status(), ErrorKind::kUnavailable,
             arm ? "this CPU has no avx2" : "this CPU has no neon");
}

TEST_CASE("a scope sets the instruction set of the process, in other threads, too") {
  const Isa before = ProcessIsa();
  {
    const ScopedIsa outer(Isa::kScalar);
    CHECK(ProcessIsa() == Isa::kScalar);
    Isa seen = before;
    std::thread([&] { seen = ProcessIsa(); }).join();
    CHECK(seen == Isa::kScalar);
    {
      const ScopedIsa inner(SupportedIsas().back());
      CHECK(ProcessIsa() == SupportedIsas().back());
    }
    CHECK(ProcessIsa() == Isa::kScalar);
  }
  CHECK(ProcessIsa() == before);
}

}  // namespace
}  // namespace prepack::testing
