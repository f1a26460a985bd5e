// prepack doctor: do this machine, what is installed on it, and a folder fit together?

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "json_reports.h"
#include "prepack/base/text.h"
#include "prepack/container/hub_cache.h"
#include "prepack/doctor/doctor.h"
#include "table.h"
#include "terminal.h"

namespace prepack::cli {
namespace {

struct DoctorCommand {
  CommonOptions common;
  std::vector<std::string> folders;
  std::string python;
};

std::string_view NameOf(CpuFit fit) {
  switch (fit) {
    case CpuFit::kRuns:
      return "runs";
    case CpuFit::kRunsWorse:
      return "runs worse";
    case CpuFit::kNot:
      return "does not run";
  }
  return "";
}

std::string FitText(const LayoutFit& fit) {
  constexpr std::array kTones = {Tone::kGood, Tone::kUnsure, Tone::kBad};
  std::string text = Paint(kTones[static_cast<size_t>(fit.fit)], NameOf(fit.fit));
  return fit.why.empty() ? text : fmt::format("{}: {}", text, fit.why);
}

#ifdef __aarch64__
constexpr bool kIsArm = true;
#else
constexpr bool kIsArm = false;
#endif

// What of the features that kernels ask of CPUs of this kind is there, or is not.
std::string FeaturesText(const CpuFeatures& features, bool there) {
  CpuFeatures all;
  for (const CpuFeatureName& row : AllCpuFeatures()) {
    if (row.arm == kIsArm && row.feature != CpuFeature::kAmd) all.Add(row.feature);
  }
  return CpuFeaturesText(there ? all.Common(features) : all.Without(features));
}

std::string KnownBytes(uint64_t bytes) {
  return bytes == 0 ? "not known" : HumanBytes(bytes);
}

std::string MachineText(const Machine& machine) {
  std::string text = "this machine\n";
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<8}{}\n", name, value);
  };
  line("CPU",
       fmt::format("{}: {}, {}, {}", machine.cpu.empty() ? "not known" : Printable(machine.cpu),
                   Plural(machine.cores, "core"), Plural(machine.cpus, "CPU"),
                   Plural(machine.numa_nodes, "NUMA node")));
  line("has", FeaturesText(machine.features, true));
  line("lacks", FeaturesText(machine.features, false));
  line("caches", fmt::format("L2 {} per core, L3 {}", KnownBytes(machine.l2_bytes),
                             KnownBytes(machine.l3_bytes)));
  std::string memory = fmt::format("{}, of which {} are free", KnownBytes(machine.memory_bytes),
                                   HumanBytes(machine.available_bytes));
  if (machine.limit_bytes != 0) {
    memory += fmt::format("; this container may use {}", HumanBytes(machine.limit_bytes));
  }
  line("memory", memory);
  return text;
}

std::string InstalledText(const DoctorReport& report) {
  std::string text =
      report.python ? fmt::format("\ninstalled in {}\n", Printable(report.python->prefix.string()))
                    : std::string("\nno Python environment was found\n");
  Table table({{"what"}, {"package"}, {"version"}, {"layouts are of"}});
  for (const InstalledConsumer& one : report.consumers) {
    const bool there = !one.package.empty();
    table.AddRow({std::string(one.consumer->name), there ? one.package : "-",
                  there ? one.version : "-",
                  one.consumer->made_for.empty() ? "-" : one.consumer->Versions(", ")});
  }
  if (report.python) text += table.Render(2);
  return text + fmt::format("  prepack itself uses {}\n", report.onednn.name.empty()
                                                              ? "no oneDNN: " + report.onednn.why
                                                              : report.onednn.name);
}

std::string LayoutsText(const DoctorReport& report) {
  Table table({{"layout"}, {"on this CPU"}, {"read by"}});
  for (const LayoutFit& fit : report.layouts) {
    table.AddRow({std::string(fit.layout->id), FitText(fit), std::string(fit.layout->consumer)});
  }
  return "\nlayouts\n" + table.Render(2);
}

std::string UsesText(const std::vector<LayoutUse>& uses) {
  std::vector<std::string> texts;
  texts.reserve(uses.size());
  for (const LayoutUse& use : uses) {
    texts.push_back(fmt::format("{} × {}", use.modules, use.fit.layout->id));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string FolderText(const FolderReport& folder) {
  std::string text = fmt::format(
      "\n{}: {}, {}\n", Printable(folder.path),
      folder.packed ? "packed for " + folder.target : Printable(folder.format) + " checkpoint",
      HumanBytes(folder.bytes));
  if (folder.packed) {
    Table table({{"layout"}, {"modules", Align::kRight}, {"on this CPU"}});
    for (const LayoutUse& use : folder.layouts) {
      table.AddRow(
          {std::string(use.fit.layout->id), fmt::format("{}", use.modules), FitText(use.fit)});
    }
    text += table.Render(2);
  } else if (!folder.targets.empty()) {
    Table table({{"target"}, {"layouts"}, {"kept", Align::kRight}, {"on this CPU"}});
    for (const TargetFit& use : folder.targets) {
      table.AddRow({std::string(use.target), UsesText(use.layouts), fmt::format("{}", use.kept),
                    use.runs ? Paint(Tone::kGood, "runs") : Paint(Tone::kBad, "does not run")});
    }
    text += table.Render(2);
  }
  for (const DoctorFinding& finding : folder.findings) {
    const bool problem = finding.severity == DoctorSeverity::kProblem;
    text += fmt::format("  {} [{}]: {}\n",
                        problem ? Paint(Tone::kBad, "problem") : Paint(Tone::kUnsure, "advice"),
                        finding.id, finding.what);
    if (!finding.todo.empty()) text += fmt::format("    -> {}\n", finding.todo);
  }
  return text +
         fmt::format("  {}\n",
                     folder.HasProblem() ? Paint(Tone::kBad, "as things are, it does not run here")
                     : folder.packed     ? Paint(Tone::kGood, "it runs here")
                                         : Paint(Tone::kGood, "it can be packed for this machine"));
}

Json FitJson(const LayoutFit& fit) {
  constexpr std::array kNames = {"runs", "runs_worse", "does_not_run"};
  return {
      {"layout", fit.layout->id}, {"cpu", kNames[static_cast<size_t>(fit.fit)]}, {"why", fit.why}};
}

Json MachineJson(const Machine& machine) {
  Json features = Json::object();
  for (const CpuFeatureName& row : AllCpuFeatures()) {
    features[std::string(row.id)] = machine.features.Has(row.feature);
  }
  return {{"cpu", machine.cpu},
          {"features", std::move(features)},
          {"cores", machine.cores},
          {"cpus", machine.cpus},
          {"numa_nodes", machine.numa_nodes},
          {"l2_bytes", machine.l2_bytes},
          {"l3_bytes", machine.l3_bytes},
          {"memory_bytes", machine.memory_bytes},
          {"available_bytes", machine.available_bytes},
          {"limit_bytes", machine.limit_bytes == 0 ? Json(nullptr) : Json(machine.limit_bytes)}};
}

Json UsesJson(const std::vector<LayoutUse>& uses) {
  Json json = Json::array();
  for (const LayoutUse& use : uses) {
    Json one = FitJson(use.fit);
    one["modules"] = use.modules;
    json.push_back(std::move(one));
  }
  return json;
}

Json FolderJson(const FolderReport& folder) {
  Json targets = Json::array();
  for (const TargetFit& use : folder.targets) {
    targets.push_back({{"target", use.target},
                       {"layouts", UsesJson(use.layouts)},
                       {"kept", use.kept},
                       {"runs", use.runs}});
  }
  Json findings = Json::array();
  for (const DoctorFinding& finding : folder.findings) {
    const bool problem = finding.severity == DoctorSeverity::kProblem;
    findings.push_back({{"id", finding.id},
                        {"severity", problem ? "problem" : "advice"},
                        {"what", finding.what},
                        {"todo", finding.todo}});
  }
  return {{"path", folder.path},
          {"packed", folder.packed},
          {"target", folder.packed ? Json(folder.target) : Json(nullptr)},
          {"format", folder.format},
          {"bytes", folder.bytes},
          {"layouts", UsesJson(folder.layouts)},
          {"targets", std::move(targets)},
          {"findings", std::move(findings)},
          {"fits", !folder.HasProblem()}};
}

Json DoctorJson(const DoctorReport& report) {
  Json json = JsonDocument("prepack-doctor");
  json["machine"] = MachineJson(report.machine);
  json["python"] = report.python ? Json(report.python->prefix.string()) : Json(nullptr);
  Json& installed = json["installed"] = Json::array();
  for (const InstalledConsumer& one : report.consumers) {
    const bool there = !one.package.empty();
    installed.push_back(
        {{"id", one.consumer->id},
         {"name", one.consumer->name},
         {"package", there ? Json(one.package) : Json(nullptr)},
         {"version", there ? Json(one.version) : Json(nullptr)},
         {"made_for",
          one.consumer->made_for.empty() ? Json(nullptr) : Json(one.consumer->made_for)},
         {"also", one.consumer->also.empty() ? Json(nullptr) : Json(one.consumer->also)}});
  }
  json["onednn"] = report.onednn.name.empty() ? Json(nullptr) : Json(report.onednn.name);
  Json& layouts = json["layouts"] = Json::array();
  for (const LayoutFit& fit : report.layouts) {
    Json one = FitJson(fit);
    one["read_by"] = fit.layout->consumer;
    layouts.push_back(std::move(one));
  }
  Json& folders = json["folders"] = Json::array();
  for (const FolderReport& folder : report.folders) folders.push_back(FolderJson(folder));
  return json;
}

ExitCodeValue RunDoctor(const DoctorCommand& command) {
  DoctorOptions options;
  options.python = command.python;
  for (const std::string& folder : command.folders) {
    Result<std::filesystem::path> path = PathOrSnapshot(folder);
    if (!path.ok()) return Fail(path.status());
    options.folders.push_back(*std::move(path));
  }
  const Result<DoctorReport> report = Diagnose(options);
  if (!report.ok()) return Fail(report.status());
  const bool fits = std::ranges::none_of(report->folders, &FolderReport::HasProblem);
  if (command.common.json) {
    PrintJson(DoctorJson(*report));
  } else if (!command.common.quiet) {
    std::string text = MachineText(report->machine) + InstalledText(*report) + LayoutsText(*report);
    for (const FolderReport& folder : report->folders) text += FolderText(folder);
    Print(text);
  } else {
    for (const FolderReport& folder : report->folders) {
      for (const DoctorFinding& finding : folder.findings) {
        if (finding.severity != DoctorSeverity::kProblem) continue;
        PrintFinding({.id = finding.id,
                      .severity = Severity::kError,
                      .where = Printable(folder.path),
                      .message = finding.what,
                      .hint = finding.todo},
                     kExitCheckFailed);
      }
    }
  }
  return fits ? kExitDone : kExitCheckFailed;
}

}  // namespace

void AddDoctor(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<DoctorCommand>();
  CLI::App* command = AddCommand(
      app, "doctor", "Show what this machine can run, and whether folders fit it", options->common,
      {.examples = "  prepack doctor\n"
                   "  prepack doctor packed/ --python .venv\n"
                   "  prepack doctor Llama-3-8B-W4A16    # which targets suit this machine?",
       .notes = "Exit codes: 0 all folders run here, or can be packed for this machine; 1 one of\n"
                "them does not. Without folders: 0."});
  command->add_option("FOLDER", options->folders,
                      "Packed folders or checkpoints, or ORG/NAME[@REVISION] of models in the "
                      "local hub cache");
  command
      ->add_option("--python", options->python,
                   "Python program, or folder of an environment, to look for runtimes in (default: "
                   "the active environment)")
      ->type_name("PATH");
  command->callback([options, &exit_code] { exit_code = RunDoctor(*options); });
}

}  // namespace prepack::cli
