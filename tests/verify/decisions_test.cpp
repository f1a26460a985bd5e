// What was decided otherwise than the checkpoint says is seen in every report.

#include <algorithm>
#include <string>

#include "prepack/verify/report/writers.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/in_parts.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

VerifyReport Judged(const std::filesystem::path& source, const PackedExample& example,
                    bool strict) {
  const TempFolder temp;
  Pack(source, example, temp / "out");
  VerifyOptions options;
  options.folder = temp / "out";
  options.source = source;
  options.engine = EngineChoice::kReference;
  options.strict = strict;
  Progress progress;
  return Value(VerifyAlsoInParts(options, progress));
}

// Notes with that text, and problems with strict; which must be for as many modules.
void CheckDecision(const std::filesystem::path& source, const PackedExample& example,
                   const std::string& text, std::ptrdiff_t count) {
  CAPTURE(source, text);
  const auto says = [&](const Problem& problem) {
    return problem.message.find(text) != std::string::npos;
  };
  const VerifyReport noted = Judged(source, example, false);
  const LevelResult& level = noted.level(Level::kExactness);
  CHECK(noted.Verdict() == LevelState::kPassed);
  CHECK(std::ranges::count_if(level.notes, says) == count);
  CHECK(std::ssize(level.notes) == count);
  const VerifyReport failed = Judged(source, example, true);
  CHECK(std::ranges::count_if(failed.level(Level::kExactness).problems, says) == count);
  CHECK(failed.Verdict() == (count == 0 ? LevelState::kPassed : LevelState::kFailed));
  if (count == 0) return;
  for (const std::string& report : {VerifyReportJson(noted).dump(), VerifyJUnit(noted),
                                    VerifyHtml(noted), VerifyMarkdown(noted)}) {
    CHECK(report.find(text) != std::string::npos);
  }
}

TEST_CASE("other activations, other dtypes and dequantized weights are noted, and fail --strict") {
  const std::filesystem::path w4 = Fixture("checkpoints/ct-w4a16-g128-sym");
  const std::filesystem::path w8 = Fixture("checkpoints/ct-w8a8-dynamic");
  CheckDecision(w4, {.target = "vllm-cpu", .scheme = WantedScheme::kW4A8},
                "it was packed for activations of 8-bit int per token dynamic; the checkpoint asks "
                "for 16-bit activations",
                7);
  CheckDecision(w4, {.target = "vllm-cpu", .activations = DType::kF16},
                "the folder was packed for F16; the checkpoint says BF16", 1);
  CheckDecision(w8, {.target = "vllm-cpu", .scheme = WantedScheme::kW8A16},
                "its weights were dequantized; the checkpoint has w8a8", 7);
}

TEST_CASE("what the checkpoint says, and what every kernel does, is no decision") {
  for (const char* checkpoint : {"ct-w4a16-g128-sym", "ct-w8a8-dynamic", "ct-w8a8-static",
                                 "ct-w4a8", "ct-fp8-dynamic", "gptqmodel-w4-sym-g128"}) {
    CheckDecision(Fixture(std::string("checkpoints/") + checkpoint), {.target = "vllm-cpu"}, "", 0);
  }
}

}  // namespace
}  // namespace prepack::testing
