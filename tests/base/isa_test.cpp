#include "base/isa.h"

#include <cstdlib>
#include <string>

#include "catch.h"

namespace prepack {
namespace {

// Sets PREPACK_ISA for one scope.
class IsaVariable {
 public:
  explicit IsaVariable(const char* value) {
    if (const char* old = std::getenv("PREPACK_ISA")) old_ = old;
    setenv("PREPACK_ISA", value, 1);
  }
  ~IsaVariable() {
    if (old_.empty()) {
      unsetenv("PREPACK_ISA");
    } else {
      setenv("PREPACK_ISA", old_.c_str(), 1);
    }
  }

 private:
  std::string old_;
};

TEST_CASE("the scalar code is always there, and the best one is the default") {
  REQUIRE_FALSE(SupportedIsas().empty());
  CHECK(SupportedIsas().front() == Isa::kScalar);
  const IsaVariable unset("");
  const Result<Isa> isa = ChooseIsa();
  REQUIRE(isa.ok());
  CHECK(*isa == SupportedIsas().back());
}

TEST_CASE("PREPACK_ISA forces an instruction set by name") {
  for (const Isa wanted : SupportedIsas()) {
    const IsaVariable variable(std::string(IsaName(wanted)).c_str());
    const Result<Isa> isa = ChooseIsa();
    REQUIRE(isa.ok());
    CHECK(*isa == wanted);
  }
}

TEST_CASE("an unknown instruction set is a usage error") {
  const IsaVariable variable("avx3");
  const Result<Isa> isa = ChooseIsa();
  REQUIRE_FALSE(isa.ok());
  CHECK(isa.status().kind() == ErrorKind::kUsage);
  CHECK(isa.status().ToString() ==
        "PREPACK_ISA: unknown instruction set (found avx3, expected scalar or avx2)");
}

}  // namespace
}  // namespace prepack
