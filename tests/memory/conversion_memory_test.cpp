// Conversions stay inside their memory, whatever the size of the model: 64 MiB, and 8 MiB for every
// thread. What the test allocates itself is counted, too.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "catch.h"
#include "memory/counting_allocator.h"
#include "prepack/convert/convert.h"
#include "prepack/layouts/table.h"
#include "sample_checkpoint.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

using bench::SampleFormat;
using bench::SampleFormats;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr unsigned kThreads = 2;
constexpr uint64_t kMost = 64 * kMiB + kThreads * 8 * kMiB;

// Modules of one size; the codes are holes.
void WriteSource(const std::filesystem::path& folder, const SampleFormat& format, uint64_t n,
                 uint64_t k, uint64_t modules) {
  bench::SampleCheckpoint checkpoint;
  checkpoint.format = format;
  checkpoint.sparse = true;
  for (uint64_t i = 0; i < modules; ++i) {
    checkpoint.modules.push_back({fmt::format("model.layers.{}.mlp.up_proj", i), n, k});
  }
  RequireOk(bench::WriteCheckpoint(folder, checkpoint));
}

// What a conversion allocates; nothing where the target has no layout for the format.
std::optional<Allocated> Converted(const std::filesystem::path& source, std::string_view target,
                                   Fallback fallback = Fallback::kKeep,
                                   unsigned threads = kThreads) {
  const TempFolder folder;
  ConvertOptions options;
  options.source = source;
  options.output = folder / "out";
  options.plan.target = target;
  options.plan.fallback = fallback;
  options.jobs = threads;
  Progress progress;
  StartCounting();
  const Result<ConvertReport> report = Convert(options, progress);
  const Allocated allocated = AllocatedSoFar();
  if (!report.ok() && report.status().kind() == ErrorKind::kUnsupported) return std::nullopt;
  RequireOk(report.status());
  return allocated;
}

TEST_CASE("every format and target converts large modules in bounded memory") {
  size_t converted = 0;
  for (const SampleFormat& format : SampleFormats()) {
    const TempFolder folder;
    // As wide and as long as those of models with 70B parameters.
    WriteSource(folder.path(), format, 28672, format.k_multiple > 128 ? 8192 : 4096, 1);
    for (const Target& target : AllTargets()) {
      const std::optional<Allocated> allocated = Converted(folder.path(), target.id);
      if (!allocated) continue;
      ++converted;
      INFO(format.name << " to " << target.id << ": " << allocated->peak / kMiB << " MiB");
      CHECK(allocated->peak <= kMost);
    }
  }
  CHECK(converted > SampleFormats().size());  // most formats fit several targets
}

TEST_CASE("dequantized modules are converted in bounded memory, too") {
  const TempFolder folder;
  const auto& formats = SampleFormats();
  const auto three_bits =
      std::ranges::find_if(formats, [](const SampleFormat& format) { return format.bits == 3; });
  REQUIRE(three_bits != formats.end());
  WriteSource(folder.path(), *three_bits, 28672, 4096, 1);
  const std::optional<Allocated> allocated =
      Converted(folder.path(), "vllm-cpu", Fallback::kDequantize);
  REQUIRE(allocated);
  CHECK(allocated->peak <= kMost);
}

TEST_CASE("memory does not grow with the number of layers") {
  const TempFolder few;
  const TempFolder many;
  const SampleFormat& format = SampleFormats().front();
  WriteSource(few.path(), format, 4096, 4096, 2);
  WriteSource(many.path(), format, 4096, 4096, 34);
  // One thread: with more, how many pieces wait to be written is chance.
  const std::optional<Allocated> of_few = Converted(few.path(), "vllm-cpu", Fallback::kKeep, 1);
  const std::optional<Allocated> of_many = Converted(many.path(), "vllm-cpu", Fallback::kKeep, 1);
  REQUIRE(of_few);
  REQUIRE(of_many);
  CHECK(of_many->peak <= of_few->peak + kMiB);  // 32 kB for each of 32 modules
}

// Tiles and strips of a module work with what those before them have allocated.
TEST_CASE("a longer module takes no more allocations") {
  // Lists of what is known of the module, which grow by doubling, and windows that its file is
  // mapped by.
  constexpr uint64_t kFew = 16;
  size_t converted = 0;
  for (const SampleFormat& format : SampleFormats()) {
    const TempFolder shorter;
    const TempFolder longer;
    WriteSource(shorter.path(), format, 2048, 1024, 1);
    WriteSource(longer.path(), format, 16384, 1024, 1);
    for (const Target& target : AllTargets()) {
      const std::optional<Allocated> of_shorter =
          Converted(shorter.path(), target.id, Fallback::kKeep, 1);
      const std::optional<Allocated> of_longer =
          Converted(longer.path(), target.id, Fallback::kKeep, 1);
      REQUIRE(of_shorter.has_value() == of_longer.has_value());
      if (!of_longer) continue;
      ++converted;
      INFO(format.name << " to " << target.id << ": " << of_shorter->calls << " and "
                       << of_longer->calls << " allocations");
      CHECK(of_longer->calls <= of_shorter->calls + kFew);
    }
  }
  CHECK(converted > SampleFormats().size());
}

// A model of many experts has 50,000 modules and more. What is known of each (names, shapes, where
// its bytes lie, hashes) is all that grows.
TEST_CASE("a small module takes little more memory than its names") {
  constexpr uint64_t kMore = 2000;
  constexpr uint64_t kMostBytes = 1792;  // of a module of 4 tensors that becomes 2
  for (const SampleFormat& format : SampleFormats()) {
    if (format.id != "gptq" && format.id != "ct-w4a16" && format.id != "ct-w8a8") continue;
    const TempFolder few;
    const TempFolder many;
    WriteSource(few.path(), format, 128, 128, kMore);
    WriteSource(many.path(), format, 128, 128, 2 * kMore);
    const std::optional<Allocated> of_few = Converted(few.path(), "vllm-cpu");
    const std::optional<Allocated> of_many = Converted(many.path(), "vllm-cpu");
    REQUIRE(of_few);
    REQUIRE(of_many);
    const uint64_t each = (of_many->peak - of_few->peak) / kMore;
    INFO(format.id << ": " << each << " bytes for each module");
    CHECK(each <= kMostBytes);
  }
}

}  // namespace
}  // namespace prepack::testing
