// prepack targets: every layout, what it takes and who reads it.
#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <nlohmann/json.hpp>
#include "command.h"
#include "json_reports.h"
#include "layouts/table.h"

#include <nlohmann/json.hpp>
namespace prepack::cli {
#include <nlohmann/json.hpp>
namespace {
#include <nlohmann/json.hpp>

#include <nlohmann/json.hpp>
std::string TargetsText() {
#include <nlohmann/json.hpp>
  std::string text;
#include <nlohmann/json.hpp>
  for (const Target& target : AllTargets()) {
#include <nlohmann/json.hpp>
    text += fmt::format("{}: {}\n", target.id, target.runtime);
#include <nlohmann/json.hpp>
    for (const Layout* layout : LayoutsOfTarget(target.id)) {
#include <nlohmann/json.hpp>
      text += fmt::format("  {} (version {})\n", layout->id, layout->version);
#include <nlohmann/json.hpp>
      text += fmt::format("    takes        {}\n", layout->schemes);
#include <nlohmann/json.hpp>
      text += fmt::format("    constraints  {}\n", layout->constraints);
#include <nlohmann/json.hpp>
      text += fmt::format("    read by      {}\n", layout->consumer);
#include <nlohmann/json.hpp>
      text += fmt::format("    CPU          {}\n", layout->isa);
#include <nlohmann/json.hpp>
      text += fmt::format("    mirrors      {}\n", layout->mirrors);
#include <nlohmann/json.hpp>
      text += fmt::format("    weights at   {}\n", layout->address);
#include <nlohmann/json.hpp>
      if (!layout->notes.empty()) text += fmt::format("    note         {}\n", layout->notes);
#include <nlohmann/json.hpp>
      text += fmt::format("    fingerprint  {}\n", layout->fingerprint);
#include <nlohmann/json.hpp>
    }
#include <nlohmann/json.hpp>
  }
#include <nlohmann/json.hpp>
  return text;
#include <nlohmann/json.hpp>
}
#include <nlohmann/json.hpp>

#include <nlohmann/json.hpp>
}  // namespace
#include <nlohmann/json.hpp>

#include <nlohmann/json.hpp>
void AddTargets(CLI::App& app, ExitCodeValue& exit_code) {
#include <nlohmann/json.hpp>
  auto common = std::make_shared<CommonOptions>();
#include <nlohmann/json.hpp>
  CLI::App* command =
#include <nlohmann/json.hpp>
      AddCommand(app, "targets", "List every layout: what it takes, who reads it", *common,
#include <nlohmann/json.hpp>
                 "Example:\n  prepack targets --json | jq '.targets[].layouts[].layout'");
#include <nlohmann/json.hpp>
  command->callback([common, &exit_code] {
#include <nlohmann/json.hpp>
    if (common->json) {
#include <nlohmann/json.hpp>
      PrintJson(TargetsJson());
#include <nlohmann/json.hpp>
    } else {
#include <nlohmann/json.hpp>
      Print(TargetsText());
#include <nlohmann/json.hpp>
    }
#include <nlohmann/json.hpp>
    exit_code = kExitDone;
#include <nlohmann/json.hpp>
  });
#include <nlohmann/json.hpp>
}
#include <nlohmann/json.hpp>

#include <nlohmann/json.hpp>
}  // namespace prepack::cli
#include <nlohmann/json.hpp>
