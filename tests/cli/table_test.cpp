#include "table.h"

#include <algorithm>
#include <string>

#include "catch.h"

namespace prepack::cli {
namespace {

TEST_CASE("columns line up, also with text that is not ASCII") {
  Table table({{"name"}, {"size", Align::kRight}, {"note"}});
  table.AddRow({"a", "1", "x"});
  table.AddRow({"größe", "1000", ""});
  CHECK(table.Render() ==
        "name   size  note\n"
        "a         1  x\n"
        "größe  1000\n");
  CHECK(table.Render(2).starts_with("  name   size  note\n  a"));
}

TEST_CASE("a table that is too wide shortens its widest columns of text") {
  Table table({{"module"}, {"N", Align::kRight}, {"scheme"}});
  table.AddRow({"model.layers.10.self_attn.q_proj", "4096", "w4a16 group 128 symmetric"});
  table.AddRow({"lm_head", "128256", "bf16"});
  CHECK(table.RenderWithin(60, 0) ==
        "module                          N  scheme\n"
        "model.layers…_attn.q_proj    4096  w4a16 group 128 symmetric\n"
        "lm_head                    128256  bf16\n");
  // Not to nothing: numbers stay, and 16 columns of each.
  CHECK(table.RenderWithin(20, 2) ==
        "  module                 N  scheme\n"
        "  model.l…n.q_proj    4096  w4a16 g…ymmetric\n"
        "  lm_head           128256  bf16\n");
  CHECK(table.RenderWithin(0, 0) == table.RenderWithin(1000, 0));
}

TEST_CASE("colours take no width") {
  Table table({{"a"}, {"b"}});
  table.AddRow({"\x1b[32mgood\x1b[0m", "x"});
  CHECK(table.Render() == "a     b\n\x1b[32mgood\x1b[0m  x\n");
}

TEST_CASE("rows of very many modules become one where only numbers of their names differ") {
  const auto named = [](size_t layers) {
    NamedTable table({{"module"}, {"N", Align::kRight}});
    for (size_t i = 0; i < layers; ++i) {
      table.AddRow("model.layers." + std::to_string(i) + ".up", {i == 7 ? "9" : "128"});
      table.AddRow("model.layers." + std::to_string(i) + ".down", {"64"});
    }
    return table.Render();
  };
  const std::string all = named(NamedTable::kMostNamedRows / 2);
  CHECK(std::ranges::count(all, '\n') == NamedTable::kMostNamedRows + 1);
  CHECK(named(NamedTable::kMostNamedRows) ==
        "module                                N\n"
        "model.layers.{0..6,8..399}.up ×399  128\n"
        "model.layers.{0..399}.down ×400      64\n"
        "model.layers.7.up                     9\n");
}

TEST_CASE("a table without rows is its header") {
  CHECK(Table({{"one"}, {"two"}}).Render() == "one  two\n");
}

}  // namespace
}  // namespace prepack::cli
