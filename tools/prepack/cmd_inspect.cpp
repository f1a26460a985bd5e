// prepack inspect: what a checkpoint, a packed folder or a .safetensors file holds.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "command.h"
#include "inspect_gguf.h"
#include "inspect_places.h"
#include "inspect_summary.h"
#include "json_reports.h"
#include "options.h"
#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/gguf/model.h"
#include "prepack/inspect/inspect.h"
#include "prepack/io/file.h"
#include "table.h"

namespace prepack::cli {
namespace {

struct InspectCommand {
  CommonOptions common;
  std::string path;
  std::string module;
  bool modules = false;
  bool tensors = false;
  std::vector<std::string> find;  // MODULE N K
  std::string at;                 // FILE:OFFSET
  std::string source;
  std::string layout;  // module
  std::string values;  // module
  std::string rows = "0:4";
  std::string cols = "0:16";
  std::string arrays;  // module
  std::string into;
  std::string html;
  bool codes = false;
  bool bytes = false;

  ValueKind ValuesKind() const {
    return codes ? ValueKind::kCodes : bytes ? ValueKind::kBytes : ValueKind::kDecoded;
  }
};

std::string FilesText(const InspectReport& report) {
  Table files({{"file"},
               {"size", Align::kRight},
               {"tensors", Align::kRight},
               {"data starts at", Align::kRight}});
  for (const FileSummary& file : report.files) {
    files.AddRow({Printable(file.name), HumanBytes(file.bytes), fmt::format("{}", file.tensors),
                  fmt::format("{}", file.data_start)});
  }
  return fmt::format("\n{}", files.Render(2));
}

// The tensors whose names are in `names`, or all when it is null.
std::string TensorsText(const InspectReport& report,
                        const std::span<const std::string_view>* names) {
  Table table({{"tensor"},
               {"dtype"},
               {"shape"},
               {"size", Align::kRight},
               {"file"},
               {"offset", Align::kRight}});
  for (const StoredTensor* tensor : report.tensors) {
    if (names != nullptr && std::ranges::find(*names, tensor->name) == names->end()) continue;
    table.AddRow({Printable(tensor->name), std::string(DTypeName(tensor->dtype)),
                  ShapeText(tensor->shape), HumanBytes(tensor->bytes),
                  Printable(report.files[tensor->file].name), fmt::format("{}", tensor->offset)});
  }
  return table.Render(2);
}

std::string ChannelsText(uint64_t first, uint64_t n) {
  return fmt::format("{} to {}", first, first + n - 1);
}

std::string FusedText(const ModuleSummary& module) {
  if (module.fused == nullptr) return "";
  Table table({{"fused of"}, {"output channels"}});
  uint64_t first = 0;
  for (const FusedMember& member : *module.fused) {
    table.AddRow({Printable(member.module), ChannelsText(first, member.n)});
    first += member.n;
  }
  return table.Render(2) + "\n";
}

std::string ModuleText(const InspectReport& report, const FoundModule& found,
                       const std::string& wanted) {
  const ModuleSummary& module = *found.module;
  std::string text;
  if (found.is_part()) {
    text = fmt::format("{}: output channels {} of\n", Printable(wanted),
                       ChannelsText(found.channels.first, found.channels.n));
  }
  return text + fmt::format("{}: N = {}, K = {}, {}, {}, {}, {:.2f} bits per weight\n{}{}",
                            Printable(module.module), module.n, module.k,
                            DescribeScheme(module.scheme), LayoutText(module.layout),
                            HumanBytes(module.bytes), module.BitsPerWeight(), FusedText(module),
                            TensorsText(report, &module.tensors));
}

Status NoSuchModule(const InspectReport& report, const std::string& wanted) {
  if (report.unreadable) return *report.unreadable;
  std::vector<std::string> names;
  for (const ModuleSummary& module : report.modules) {
    names.emplace_back(module.module);
    if (module.fused == nullptr) continue;
    for (const FusedMember& member : *module.fused) names.push_back(member.module);
  }
  return Usage("--module", "no quantized module has this name")
      .Found(wanted)
      .Hint(DidYouMean(wanted, names));
}

// Leaves only what belongs to one module.
void KeepModule(InspectReport& report, const ModuleSummary& wanted) {
  const ModuleSummary module = wanted;
  std::erase_if(report.tensors, [&](const StoredTensor* tensor) {
    return std::ranges::find(module.tensors, tensor->name) == module.tensors.end();
  });
  report.modules = {module};
}

std::string ReportText(const InspectReport& report, const InspectCommand& options) {
  std::string text = SummaryText(report);
  if (report.unreadable) {
    text +=
        fmt::format("\nquantized modules cannot be described: {}\n", report.unreadable->ToString());
  }
  text += options.modules ? AllModulesText(report) : FoldedModulesText(report);
  if (options.tensors || report.kind == FolderKind::kSafetensorsFile) {
    text += FilesText(report) + "\n" + TensorsText(report, nullptr);
  }
  return text + FindingsText(report.findings);
}

// Prints what a part of the command has found, as text or JSON.
template <typename Found, typename Text, typename ToJson>
ExitCodeValue Show(const CommonOptions& common, const Result<Found>& found, Text text,
                   ToJson to_json) {
  if (!found.ok()) return Fail(found.status());
  if (common.json) {
    PrintJson(to_json(*found));
  } else if (!common.quiet) {
    Print(text(*found));
  }
  return kExitDone;
}

void PrintReport(const InspectReport& report, const Json& summary, const Json& statistics) {
  JsonWriter json(PrintJsonText);
  WriteInspectJson(report, summary, statistics, json);
  FinishJson(json);
}

// The page may not be written into what it is about.
Status CheckPagePath(const InspectCommand& options) {
  OutputPaths paths;
  std::error_code error;
  if (std::filesystem::is_directory(options.path, error)) {
    paths.ProtectFolder(options.path, "the folder");
  } else {
    paths.ProtectFile(options.path, "the file");
  }
  return paths.Add("--html", options.html);
}

ExitCodeValue ShowFolder(const InspectReport& report, const InspectCommand& options) {
  if (!options.html.empty()) {
    const Status written = WriteFileAtomically(options.html, InspectHtml(report));
    if (!written.ok()) return Fail(written);
  }
  if (options.common.json) {
    PrintReport(report, SummaryJson(report), nullptr);
  } else if (!options.common.quiet) {
    Print(ReportText(report, options));
  }
  return kExitDone;
}

Result<ModuleNumbers> NumbersOf(const InspectCommand& options) {
  PREPACK_TRY_ASSIGN(const OpenedFolder folder, OpenedFolder::Open(options.path));
  return MeasureModule(folder, options.module);
}

// What the headers say is shown whether or not the numbers can be read.
ExitCodeValue ShowModule(InspectReport& report, const InspectCommand& options) {
  const std::optional<FoundModule> module = report.FindModule(options.module);
  if (!module) return Fail(NoSuchModule(report, options.module));
  const Result<ModuleNumbers> numbers = NumbersOf(options);
  if (options.common.json) {
    KeepModule(report, *module->module);
    PrintReport(report, nullptr,
                numbers.ok() ? NumbersJson(options.module, *numbers) : Json(nullptr));
  } else if (!options.common.quiet) {
    Print(ModuleText(report, *module, options.module));
    if (numbers.ok()) Print(NumbersText(*numbers, StyleOfTerminal()));
  }
  return numbers.ok() ? kExitDone : Fail(numbers.status());
}

Result<ModuleArrays> ArraysOf(const InspectCommand& options) {
  OutputPaths paths;
  paths.ProtectFolder(options.path, "the folder");
  PREPACK_TRY(paths.Add("--into", options.into));
  PREPACK_TRY_ASSIGN(const OpenedFolder folder, OpenedFolder::Open(options.path));
  return WriteModuleArrays(folder, options.arrays, options.into);
}

// Is it asked for single numbers? They are found in GGUF files as in all others.
bool LooksAtNumbers(const InspectCommand& options) {
  return !options.find.empty() || !options.at.empty() || !options.layout.empty() ||
         !options.values.empty() || !options.arrays.empty();
}

// What is said of whole modules is not said of a GGUF file, whose tensors are listed instead.
Status CheckGgufOptions(const InspectCommand& options) {
  if (options.module.empty() && !options.modules && options.html.empty()) return {};
  return Usage("inspect", "this option is not for GGUF files")
      .Expected("--tensors, --json, --find, --at, --layout, --values or --arrays")
      .Hint("Without options, inspect shows metadata and types");
}

ExitCodeValue RunInspectGguf(const InspectCommand& options) {
  if (const Status status = CheckGgufOptions(options); !status.ok()) return Fail(status);
  const Result<gguf::Model> model = gguf::Model::Open(options.path);
  if (!model.ok()) return Fail(model.status());
  if (options.common.json) {
    const Result<Json> json = GgufJson(*model);
    if (!json.ok()) return Fail(json.status());
    PrintJson(*json);
    return kExitDone;
  }
  const Result<std::string> text = GgufText(*model, options.tensors);
  if (!text.ok()) return Fail(text.status());
  if (!options.common.quiet) Print(*text);
  return kExitDone;
}

ExitCodeValue RunInspect(const InspectCommand& options) {
  if (gguf::IsGguf(options.path) && !LooksAtNumbers(options)) return RunInspectGguf(options);
  if (!options.arrays.empty()) {
    return Show(options.common, ArraysOf(options), ArraysText,
                [&](const ModuleArrays& arrays) { return ArraysJson(options.path, arrays); });
  }
  if (!options.find.empty()) {
    return Show(options.common, FindSides(options.path, options.source, options.find), FoundText,
                [&](const FoundSides& found) { return FoundJson(options.path, found); });
  }
  if (!options.at.empty()) {
    return Show(options.common, ContentsAt(options.path, options.at), ContentsText,
                [&](const ByteContents& contents) { return ContentsJson(options.path, contents); });
  }
  if (!options.layout.empty()) {
    return Show(
        options.common, DrawSides(options.path, options.source, options.layout),
        [](const DrawnSides& drawn) { return DrawingText(drawn, StyleOfTerminal()); },
        [&](const DrawnSides& drawn) { return DrawingJson(options.path, drawn); });
  }
  if (!options.values.empty()) {
    return Show(
        options.common,
        ValuesOf(options.path, options.values, options.rows, options.cols, options.ValuesKind()),
        ValuesText, [&](const WeightValues& values) { return ValuesJson(options.path, values); });
  }
  if (!options.html.empty()) {
    if (const Status path = CheckPagePath(options); !path.ok()) return Fail(path);
  }
  Result<InspectReport>& report = KeepUntilExit(Inspect(options.path));
  if (!report.ok()) return Fail(report.status());
  return options.module.empty() ? ShowFolder(*report, options) : ShowModule(*report, options);
}

void AddValues(CLI::App& command, InspectCommand& options) {
  auto* values =
      command.add_option("--values", options.values, "Show the weights of a module as numbers");
  values->type_name("MODULE")->excludes("--module", "--modules", "--tensors", "--html", "--find",
                                        "--at", "--layout");
  command
      .add_option("--rows", options.rows, "With --values: output channels to show (default: 0:4)")
      ->type_name("FIRST:END")
      ->needs(values);
  command
      .add_option("--cols", options.cols, "With --values: input channels to show (default: 0:16)")
      ->type_name("FIRST:END")
      ->needs(values);
  auto* codes = command.add_flag("--codes", options.codes,
                                 "With --values: show codes instead of decoded weights");
  codes->needs(values);
  command
      .add_flag("--bytes", options.bytes, "With --values: show the byte that each code begins in")
      ->needs(values)
      ->excludes(codes);
}

void AddArrays(CLI::App& command, InspectCommand& options) {
  auto* arrays = command.add_option("--arrays", options.arrays,
                                    "Write the codes, scales and zero points of a module into a "
                                    "safetensors file, for programs; the output says where each "
                                    "array is, which may also be in the folder itself");
  arrays->type_name("MODULE")->excludes("--module", "--modules", "--tensors", "--html", "--find",
                                        "--at", "--layout", "--source", "--values");
  auto* into = command.add_option("--into", options.into, "With --arrays: the file to write");
  into->type_name("FILE")->needs(arrays);
  arrays->needs(into);
}

}  // namespace

void AddInspect(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<InspectCommand>();
  CLI::App* command = AddCommand(
      app, "inspect", "Show what a checkpoint, packed folder, .safetensors or .gguf file holds",
      options->common,
      {.examples =
           "  prepack inspect Llama-3-8B-W4A16\n"
           "  prepack inspect Llama-3-8B-W4A16 --html model.html\n"
           "  prepack inspect packed/ --module model.layers.0.mlp.down_proj\n"
           "  prepack inspect packed/ --find model.layers.0.mlp.down_proj 5 100\n"
           "  prepack inspect packed/ --at model.safetensors:4096\n"
           "  prepack inspect packed/ --layout model.layers.0.mlp.down_proj\n"
           "  prepack inspect packed/ --values model.layers.0.mlp.down_proj --rows 0:4 --cols "
           "0:16\n"
           "  prepack inspect packed/ --arrays model.layers.0.mlp.down_proj --into "
           "arrays.safetensors\n"
           "  prepack inspect model-00001-of-00002.safetensors --json | jq '.tensors[].name'",
       .notes = ""});
  command
      ->add_option("PATH", options->path,
                   "Folder, .safetensors or .gguf file, or ORG/NAME[@REVISION] of a model in the "
                   "local hub cache")
      ->required();
  command
      ->add_option("--module", options->module,
                   "Show one quantized module: its tensors, and a summary of its codes, scales and "
                   "zero points")
      ->type_name("NAME");
  command->add_flag("--modules", options->modules,
                    "List every module by itself, even if names differ only in numbers");
  command->add_flag("--tensors", options->tensors, "List every file and every tensor");
  command->add_option("--html", options->html, "Write the report as one self-contained page")
      ->type_name("FILE")
      ->excludes("--module");
  CLI::Option* find =
      command->add_option("--find", options->find,
                          "Show which bytes hold weight (n, k) of a module, its scale and its zero "
                          "point; for a packed folder, also in its source");
  find->type_name("MODULE N K")
      ->expected(3)
      ->excludes("--module", "--modules", "--tensors", "--html");
  command->add_option("--at", options->at, "Show what a byte of a file holds")
      ->type_name("FILE:OFFSET")
      ->excludes("--module", "--modules", "--tensors", "--html", "--find");
  command
      ->add_option("--layout", options->layout,
                   "Draw which weight each of a module's first nibbles or bytes holds; for a "
                   "packed folder, also in its source")
      ->type_name("MODULE")
      ->excludes("--module", "--modules", "--tensors", "--html", "--find", "--at");
  command
      ->add_option("--source", options->source,
                   "With --find and --layout: the checkpoint that a packed folder was made from "
                   "(default: the path in the manifest)")
      ->type_name("FOLDER")
      ->excludes("--module", "--modules", "--tensors", "--html", "--at");
  AddValues(*command, *options);
  AddArrays(*command, *options);
  command->callback([options, &exit_code] {
    exit_code =
        WithModels({&options->path, &options->source}, [&] { return RunInspect(*options); });
  });
}

}  // namespace prepack::cli
