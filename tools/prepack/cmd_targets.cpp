// prepack targets: every layout, what it takes and who reads it.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "command.h"
#include "json_reports.h"
#include "layouts/table.h"

namespace prepack::cli {
namespace {

std::string TargetsText() {
  std::string text;
  for (const Target& target : AllTargets()) {
    text += fmt::format("{}: {}\n", target.id, target.runtime);
    for (const Layout* layout : LayoutsOfTarget(target.id)) {
      text += fmt::format("  {} (version {})\n", layout->id, layout->version);
      text += fmt::format("    takes        {}\n", layout->schemes);
      text += fmt::format("    constraints  {}\n", layout->constraints);
      text += fmt::format("    read by      {}\n", layout->consumer);
      text += fmt::format("    CPU          {}\n", layout->isa);
      text += fmt::format("    mirrors      {}\n", layout->mirrors);
      text += fmt::format("    weights at   {}\n", layout->address);
      if (!layout->notes.empty()) text += fmt::format("    note         {}\n", layout->notes);
      text += fmt::format("    fingerprint  {}\n", layout->fingerprint);
    }
  }
  return text;
}

}  // namespace

void AddTargets(CLI::App& app, ExitCodeValue& exit_code) {
  auto common = std::make_shared<CommonOptions>();
  CLI::App* command = AddCommand(
      app, "targets", "List every layout: what it takes, who reads it", *common,
      {.examples = "  prepack targets --json | jq '.targets[].layouts[].layout'", .notes = ""});
  command->callback([common, &exit_code] {
    if (common->json) {
      PrintJson(TargetsJson());
    } else {
      Print(TargetsText());
    }
    exit_code = kExitDone;
  });
}

}  // namespace prepack::cli
