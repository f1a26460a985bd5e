#include "verify_output.h"

#include <string>

#include "../verify/example_report.h"
#include "catch.h"
#include "text.h"

namespace prepack::cli {
namespace {

using testing::Contains;
using testing::CountOf;
using testing::ExampleReport;
using testing::FullReport;

TEST_CASE("a report is a table, a line per level and the verdict") {
  CHECK(VerifyText(ExampleReport(2)) ==
        "module  layout          exact  scale diff  kernel dB  end-to-end dB  worst channel  GEMM\n"
        "a       vllm-cpu/wna16  yes       0.0e+00       55.5           52.2      n 7: 51.5  "
        "brg_matmul:avx2, x f32 (bf16 values)\n"
        "b       vllm-cpu/wna16  yes       0.0e+00       55.5           52.2      n 7: 51.5  "
        "brg_matmul:avx2, x f32 (bf16 values)\n"
        "\n"
        "integrity   passed   sizes, hashes, headers and packing fingerprints\n"
        "exactness   passed   codes, zero points, scales and all other tensors as in the source\n"
        "gemm        passed   onednn 3.13.2: 2 modules, gaussian activations; closest to the bar: "
        "kernel 55.5 dB (at least 48.0), end to end 52.2 dB (at least 40.0)\n"
        "\n"
        "passed\n");
}

TEST_CASE("problems, notes, the sample and the comparison are told") {
  const std::string text = VerifyText(FullReport());
  CHECK(Contains(text, "weight dB  output dB"));
  CHECK_FALSE(Contains(text, "\nc "));  // not in the sample
  CHECK(Contains(text, "integrity   failed   sizes"));
  CHECK(Contains(text, "\n  config.json: it is missing\n"));
  CHECK(Contains(text, "quality     not run  no such model\n"));
  CHECK(Contains(text, "regression  passed   against earlier.json\n  note: module b: it is new\n"));
  CHECK(Contains(text, "\nchecked 2 of 3 modules (--sample 0.5, seed 7)\n"));
  CHECK(text.ends_with("\n\nfailed: integrity, gemm\n"));
}

TEST_CASE("of very many modules only those that matter are shown") {
  CHECK_FALSE(Contains(VerifyText(ExampleReport(40)), "more modules"));
  VerifyReport report = ExampleReport(100);
  report.modules[99].gemm->inputs[0].kernel.sqnr_db = 48.5;
  report.modules[98].state(Level::kExactness) = LevelState::kFailed;
  const std::string text = VerifyText(report);
  CHECK(CountOf(text, "vllm-cpu/wna16") == 11);
  CHECK(Contains(text, "\n" + report.modules[99].module + " "));
  CHECK(Contains(text, "\n" + report.modules[98].module + " "));
  CHECK(Contains(text, "… and 89 more modules (--json has all)"));
}

TEST_CASE("at most twenty problems of a level are shown, and no control characters") {
  VerifyReport report = ExampleReport(1);
  for (size_t i = 0; i < 25; ++i) report.level(Level::kGemm).Fail("x", "bad \x1b");
  report.modules[0].module = "a\x1b";
  const std::string text = VerifyText(report);
  CHECK(CountOf(text, "  x: bad \\x1b\n") == 20);
  CHECK(Contains(text, "  … and 5 more (--json lists all)\n"));
  CHECK_FALSE(Contains(text, "\x1b"));
}

TEST_CASE("a folder without modules has no table") {
  CHECK(VerifyText(ExampleReport(0)).starts_with("integrity"));
}

}  // namespace
}  // namespace prepack::cli
