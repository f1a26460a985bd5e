#include "verify/gemm_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/checked.h"
#include "base/float_convert.h"
#include "base/parallel.h"
#include "base/random.h"
#include "canonical/panel_shape.h"
#include "gemm/reference.h"
#include "layouts/parameters.h"

namespace prepack {
namespace {

// Activations of one module: as drawn, and as a bf16 kernel sees them.
struct Activations {
  std::vector<double> exact;       // [M, K]
  std::vector<double> rounded;     // [M, K]
  std::vector<float> rounded_f32;  // the same, for the engine
};

uint64_t SeedOf(std::string_view module) {
  uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a: each module gets activations of its own
  for (const char c : module) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

Activations DrawActivations(std::string_view module, uint64_t k) {
  SplitMix64 random(SeedOf(module));
  Activations x;
  for (uint64_t i = 0; i < kGemmRows * k; ++i) {
    const double value = random.Gaussian();
    const float rounded = BF16ToF32(F32ToBF16(static_cast<float>(value)));
    x.exact.push_back(value);
    x.rounded.push_back(static_cast<double>(rounded));
    x.rounded_f32.push_back(rounded);
  }
  return x;
}

struct Buffers {
  std::vector<std::byte> packed;
  std::vector<std::byte> codes;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
  std::vector<float> y;
  GemmInfo info;  // of this panel
  DecodedRows decoded;
  std::vector<double> exact_weights;
  std::vector<double> kernel_weights;
  std::vector<double> exact_y;
  std::vector<double> kernel_y;
};

struct Sqnr {
  SqnrAccumulator kernel;
  SqnrAccumulator end_to_end;
};

// The GEMM check of one module, cut into panels of rows.
class ModuleGemm {
 public:
  ModuleGemm(const PackedModule& packed, const SecondDecoder& source, GemmEngine& engine,
             std::mutex& engine_mutex)
      : packed_(packed),
        source_(source),
        engine_(engine),
        engine_mutex_(engine_mutex),
        x_(DrawActivations(packed.name(), packed.request().k)) {}

  Status Run(uint64_t n0, uint64_t rows, Buffers& buffers, Sqnr& sqnr);
  const GemmInfo& info() const { return info_; }

 private:
  Status RunEngine(uint64_t n0, uint64_t rows, Buffers& buffers);
  void FillWeights(uint64_t rows, Buffers& buffers) const;

  const PackedModule& packed_;
  const SecondDecoder& source_;
  GemmEngine& engine_;
  std::mutex& engine_mutex_;
  Activations x_;
  GemmInfo info_;
};

Status ModuleGemm::RunEngine(uint64_t n0, uint64_t rows, Buffers& buffers) {
  const PackRequest& request = packed_.request();
  buffers.codes.resize(
      PanelBytes(request.scheme.code, {.n0 = n0, .rows = rows, .k0 = 0, .cols = request.k}));
  buffers.scales.resize(rows * request.groups());
  buffers.zero_points.resize(buffers.scales.size());
  buffers.y.resize(kGemmRows * rows);
  Status status = packed_.ReadCodes(n0, rows, buffers.packed, buffers.codes);
  if (status.ok()) status = packed_.ReadScales(n0, rows, buffers.packed, buffers.scales);
  if (status.ok()) status = packed_.ReadZeroPoints(n0, rows, buffers.packed, buffers.zero_points);
  if (!status.ok()) return status;

  const W4A16Problem problem{.m = kGemmRows,
                             .n = rows,
                             .k = request.k,
                             .group_size = request.scheme.group_size,
                             .x = x_.rounded_f32,
                             .codes = buffers.codes,
                             .scales = buffers.scales,
                             .zero_points = request.scheme.symmetric
                                                ? std::span<const uint8_t>()
                                                : std::span<const uint8_t>(buffers.zero_points)};
  const std::lock_guard lock(engine_mutex_);  // the engine has threads of its own
  Result<GemmInfo> info = engine_.Run(problem, buffers.y);
  if (!info.ok()) return std::move(info).status();
  buffers.info = *std::move(info);
  if (n0 == 0) info_ = buffers.info;  // the report names what ran on the first panel
  return {};
}

// Weights in f64: exact, and rounded where the kernel rounds (scale, then weight).
void ModuleGemm::FillWeights(uint64_t rows, Buffers& buffers) const {
  const PackRequest& request = packed_.request();
  const DType scale_dtype = packed_.layout().scale_form(request).value;
  const bool rounds_weights = buffers.info.rounds_weights_to_bf16;
  buffers.exact_weights.resize(rows * request.k);
  buffers.kernel_weights.resize(rows * request.k);
  for (uint64_t i = 0; i < rows * request.k; ++i) {
    const uint64_t group = i / request.scheme.group_size;  // K is a multiple of the group size
    const double scale = buffers.decoded.scales[group];
    const int step = buffers.decoded.steps[i];
    const float kernel_scale = RoundScale(scale_dtype, static_cast<float>(scale));
    const float weight = static_cast<float>(step) * kernel_scale;
    buffers.exact_weights[i] = step * scale;
    buffers.kernel_weights[i] =
        static_cast<double>(rounds_weights ? BF16ToF32(F32ToBF16(weight)) : weight);
  }
}

Status ModuleGemm::Run(uint64_t n0, uint64_t rows, Buffers& buffers, Sqnr& sqnr) {
  const uint64_t k = packed_.request().k;
  Status status = RunEngine(n0, rows, buffers);
  if (status.ok()) status = source_.Decode(packed_.name(), k, n0, rows, buffers.decoded);
  if (!status.ok()) return status;
  if (buffers.decoded.scales.size() != rows * packed_.request().groups()) {
    return Malformed(fmt::format("module {}", packed_.name()),
                     "the source has another number of groups than the packed folder");
  }
  FillWeights(rows, buffers);
  buffers.exact_y.resize(kGemmRows * rows);
  buffers.kernel_y.resize(kGemmRows * rows);
  ReferenceGemm(kGemmRows, rows, k, x_.exact, buffers.exact_weights, buffers.exact_y);
  ReferenceGemm(kGemmRows, rows, k, x_.rounded, buffers.kernel_weights, buffers.kernel_y);
  sqnr.end_to_end.Add(buffers.exact_y, buffers.y);
  sqnr.kernel.Add(buffers.kernel_y, buffers.y);
  return {};
}

Result<Sqnr> RunModule(ModuleGemm& gemm, const PackedModule& packed, unsigned threads,
                       std::vector<Buffers>& buffers, Progress& progress) {
  const uint64_t n = packed.request().n;
  const uint64_t step = PanelRowsFor(packed.request().scheme.code, packed.request().k,
                                     packed.layout().cut(packed.request()).rows);
  std::vector<Sqnr> panels(static_cast<size_t>(CeilDiv(n, step)));
  Status status = ParallelFor(panels.size(), threads, [&](size_t index, unsigned worker) {
    if (CancellationRequested()) return Interrupted(packed.name());
    const uint64_t n0 = index * step;
    Status ran = gemm.Run(n0, std::min(step, n - n0), buffers[worker], panels[index]);
    progress.Add(buffers[worker].codes.size());
    return ran;
  });
  if (!status.ok()) return status;
  Sqnr all;  // merged in the order of the panels: the figures do not depend on timing
  for (const Sqnr& panel : panels) {
    all.kernel.Merge(panel.kernel);
    all.end_to_end.Merge(panel.end_to_end);
  }
  return all;
}

constexpr std::string_view kNotMultiplied =
    "not multiplied: the engines take 4-bit weights with 16-bit activations in natural order";

bool CanMultiply(const PackRequest& request) {
  return request.scheme.code == CodeType::kU4 && request.scheme.bits == 4 &&
         request.scheme.activations.type == ActivationType::kNone && !request.reordered;
}

// Judges one figure; false when it proves nothing.
bool Judge(const std::string& module, std::string_view figure, double decibel, double bar,
           LevelResult& result) {
  if (std::isnan(decibel)) {
    result.problems.push_back(
        {fmt::format("module {}", module),
         fmt::format("the {} SQNR proves nothing: the expected output is zero or not finite",
                     figure)});
    return false;
  }
  if (decibel < bar) {
    result.Fail(fmt::format("module {}", module),
                fmt::format("the {} SQNR is too low (found {:.1f} dB, expected at least {:.1f} dB)",
                            figure, decibel, bar));
  }
  return true;
}

}  // namespace

Result<LevelResult> CheckGemm(const PackedFolder& folder, const SecondDecoder& source,
                              GemmEngine& engine, double min_kernel_db, double min_end_to_end_db,
                              Isa isa, unsigned threads, Progress& progress,
                              std::map<std::string, ModuleVerification>& figures) {
  uint64_t total = 0;
  for (const auto& [name, record] : folder.manifest().modules) total += record.n * record.k / 2;
  progress.Begin("GEMM", total);

  LevelResult result{.state = LevelState::kPassed, .reason = "", .problems = {}};
  bool all_prove_something = !folder.manifest().modules.empty();
  std::mutex engine_mutex;
  std::vector<Buffers> buffers(threads);
  for (const auto& [name, record] : folder.manifest().modules) {
    const Result<PackedModule> packed = PackedModule::Open(folder, name, record, isa);
    if (!packed.ok()) return packed.status();
    if (!CanMultiply(packed->request())) {
      all_prove_something = false;
      result.problems.push_back({fmt::format("module {}", name), std::string(kNotMultiplied)});
      continue;
    }
    ModuleGemm gemm(*packed, source, engine, engine_mutex);
    const Result<Sqnr> sqnr = RunModule(gemm, *packed, threads, buffers, progress);
    if (!sqnr.ok()) return sqnr.status();

    ModuleVerification& figure = figures.at(name);
    figure.kernel_sqnr_db = sqnr->kernel.Decibel();
    figure.end_to_end_sqnr_db = sqnr->end_to_end.Decibel();
    figure.gemm_implementation = gemm.info().implementation;
    figure.gemm_activations = gemm.info().activation_type;
    const bool kernel = Judge(name, "kernel", *figure.kernel_sqnr_db, min_kernel_db, result);
    const bool end_to_end =
        Judge(name, "end-to-end", *figure.end_to_end_sqnr_db, min_end_to_end_db, result);
    all_prove_something = all_prove_something && kernel && end_to_end;
  }
  if (result.state == LevelState::kPassed && !all_prove_something) {
    result.state = LevelState::kNotRun;
    result.reason = "some modules were not multiplied, or their result proves nothing";
  }
  return result;
}

}  // namespace prepack
