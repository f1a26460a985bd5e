#include "parts_table.h"
#include "prepack/base/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "examples.h"
#include "formulas.h"

namespace prepack::layouts_doc {
namespace {

// A part of those examples in which it is the same but for the numbers.
struct Family {
  std::vector<PackRequest> requests;
  std::vector<PartSpec> parts;
};

// What tells parts of one name apart: everything but the numbers.
auto FamilyKey(const PackRequest& request, const PartSpec& part) {
  const ActivationScheme& activations = request.scheme.activations;
  return std::tuple(part.role, part.dtype, request.scheme.granularity, request.scheme.symmetric,
                    activations.dynamic, activations.symmetric);
}

using Families = std::map<decltype(FamilyKey({}, {})), Family>;

Families FamiliesOf(const Layout& layout, const std::vector<PackRequest>& examples) {
  Families families;
  for (const PackRequest& request : examples) {
    for (const PartSpec& part : layout.Parts(request)) {
      Family& family = families[FamilyKey(request, part)];
      family.requests.push_back(request);
      family.parts.push_back(part);
    }
  }
  return families;
}

// "[N/32, K]". Empty when a formula is missing.
std::string ShapeText(const Family& family, std::vector<uint64_t> PartSpec::*shape) {
  std::string text;
  const size_t rank = (family.parts[0].*shape).size();
  for (size_t i = 0; i < rank; ++i) {
    std::vector<uint64_t> values;
    for (const PartSpec& part : family.parts) values.push_back((part.*shape)[i]);
    const std::string formula = DimensionFormula(family.requests, values);
    if (formula.empty()) return "";
    text += (i == 0 ? "" : ", ") + formula;
  }
  return "[" + text + "]";
}

std::string DivisionText(const Family& family, Division PartSpec::*division) {
  const Division& first = family.parts[0].*division;
  if (first.kind == Division::Kind::kNever) return "never";
  if (first.kind == Division::Kind::kWhole) return "whole";
  std::vector<uint64_t> units;
  for (const PartSpec& part : family.parts) units.push_back((part.*division).unit);
  const std::string unit = UnitFormula(family.requests, units);
  return unit.empty() ? "" : fmt::format("axis {}, by {}", first.axis, unit);
}

// All columns but the last.
Result<std::string> RowText(const Family& family) {
  const PartSpec& part = family.parts[0];
  std::string shape = ShapeText(family, &PartSpec::shape);
  const bool has_view = !part.view.empty();
  const std::string view = has_view ? ShapeText(family, &PartSpec::view) : "";
  const std::string outputs = DivisionText(family, &PartSpec::by_outputs);
  const std::string inputs = DivisionText(family, &PartSpec::by_inputs);
  if (shape.empty() || view.empty() == has_view || outputs.empty() || inputs.empty()) {
    return Unsupported(fmt::format("part {}", part.name),
                       "formulas.cpp has no formula for its shape or for a unit of it");
  }
  if (has_view) shape += ", cut as " + view;
  return fmt::format("| `{}` | {} | {} | {} | {} |", part.name, DTypeName(part.dtype), shape,
                     outputs, inputs);
}

std::string WhenText(PartRole role, const std::string& condition) {
  const bool always = condition == "always";
  if (role == PartRole::kBias) {
    return always ? "the module has a bias" : "the module has a bias; " + condition;
  }
  return role == PartRole::kInputOrder ? "the module has activation order" : condition;
}

// The examples that a row of the table is about.
struct Row {
  PartRole role;
  std::vector<bool> holds;
};

}  // namespace

Result<std::string> PartsTable(const Layout& layout) {
  const std::vector<PackRequest> examples = Examples(layout);
  std::vector<std::pair<std::string, Row>> rows;
  for (const auto& [key, family] : FamiliesOf(layout, examples)) {
    PREPACK_TRY_ASSIGN(std::string text, RowText(family));
    auto row = std::ranges::find(rows, text, &std::pair<std::string, Row>::first);
    if (row == rows.end()) {
      rows.emplace_back(text, Row{std::get<0>(key), std::vector<bool>(examples.size())});
      row = rows.end() - 1;
    }
    for (size_t i = 0; i < examples.size(); ++i) {
      for (const PartSpec& part : layout.Parts(examples[i])) {
        if (FamilyKey(examples[i], part) == key) row->second.holds[i] = true;
      }
    }
  }
  std::string table =
      "| part | dtype | shape | pieces of N | pieces of K | when |\n|---|---|---|---|---|---|\n";
  for (const auto& [text, row] : rows) {
    const std::string condition = ConditionFor(examples, row.holds);
    if (condition.empty()) {
      return Unsupported(text, "formulas.cpp has no words for when the layout has this part");
    }
    table += fmt::format("{} {} |\n", text, WhenText(row.role, condition));
  }
  return table;
}

}  // namespace prepack::layouts_doc
