// prepack merge: the parts of a conversion become one packed folder.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "json_reports.h"
#include "prepack/convert/merge.h"
#include "table.h"
#include "terminal.h"

namespace prepack::cli {
namespace {

struct MergeCommand {
  CommonOptions common;
  MergeOptions merge;
};

std::string MergeText(const MergeReport& report, const std::string& output) {
  std::string text = fmt::format("{}: {} parts, {} packed modules for {}\n", output, report.parts,
                                 report.packed_modules, report.target);
  for (const auto& [layout, modules] : report.layouts) {
    text += fmt::format("  {:>5} × {}\n", modules, layout);
  }
  return text + fmt::format("  {} other tensors; {} in {}\n", report.copied_tensors,
                            HumanBytes(report.output_bytes), Plural(report.shards.size(), "file"));
}

ExitCodeValue RunMerge(const MergeCommand& options) {
  ProgressDisplay display(options.common);
  const Result<MergeReport> report = Merge(options.merge, display.progress());
  display.Stop();
  if (!report.ok()) return Fail(report.status());
  const std::string output = options.merge.output.string();
  if (options.common.json) {
    PrintJson(MergeJson(*report, output));
  } else if (!options.common.quiet) {
    Print(MergeText(*report, output));
  }
  return kExitDone;
}

}  // namespace

void AddMerge(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<MergeCommand>();
  CLI::App* command = AddCommand(
      app, "merge", "Join the parts of a conversion into one packed folder", options->common,
      {.examples = "  prepack convert big/ -o packed/ -t vllm-cpu --part 1/2    # one machine\n"
                   "  prepack convert big/ -o packed/ -t vllm-cpu --part 2/2    # another one\n"
                   "  prepack merge packed/",
       .notes = "The parts are the folders OUT.part-00001-of-0000N and so on that\n"
                "`prepack convert -o OUT --part I/N` made beside OUT. If the file system has hard\n"
                "links, merge copies no weights. It does not need the source."});
  command->add_option("OUT", options->merge.output, "Output folder")->required();
  command->add_flag("--force", options->merge.replace, "Replace an existing packed folder");
  command->add_flag("--keep-parts", options->merge.keep_parts, "Leave the parts where they are");
  AddProgressOptions(*command, options->common);
  command->callback([options, &exit_code] { exit_code = RunMerge(*options); });
}

}  // namespace prepack::cli
