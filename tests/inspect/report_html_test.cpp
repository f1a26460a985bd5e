#include "prepack/inspect/inspect.h"

#include <fmt/format.h>

#include <deque>
#include <memory>
#include <span>

#include "catch.h"
#include "text.h"

namespace prepack::testing {
namespace {

InspectReport PackedReport() {
  InspectReport report;
  report.path = "<packed>";
  report.kind = FolderKind::kPacked;
  report.format = "awq";
  report.target = "zentorch";
  report.origin = {.prepack_version = "1.2.3",
                   .source_path = "../source",
                   .source_hub = HubOrigin{"acme/model", std::string(40, 'a')},
                   .source_fingerprint = "abc",
                   .activation_dtype = "bf16",
                   .options = "--fuse"};
  return report;
}

void AddModules(int layers, InspectReport& report) {
  struct Source {
    std::deque<std::string> names;
    std::deque<std::string_view> views;
    std::deque<StoredTensor> tensors;
  };
  const auto source = std::make_shared<Source>();
  report.source = source;
  report.files = {{.name = "model.safetensors"}};
  for (int layer = 0; layer < layers; ++layer) {
    const std::string& name = source->names.emplace_back(fmt::format("layers.{}.up", layer));
    source->views.emplace_back(source->names.emplace_back(name + ".weight"));
    report.modules.push_back({.module = name,
                              .scheme = Scheme{.group_size = 32},
                              .layout = "zentorch/woq",
                              .n = 8,
                              .k = 64,
                              .bytes = 288,
                              .tensors = std::span(&source->views.back(), 1)});
    source->tensors.push_back({.name = source->views.back(), .shape = {8, 36}, .bytes = 288});
  }
  source->tensors.push_back(
      {.name = "norm.weight", .dtype = DType::kF32, .shape = {}, .bytes = 1234});
  for (const StoredTensor& tensor : source->tensors) report.tensors.push_back(&tensor);
}

TEST_CASE("a page of a packed folder has its origin, its schemes and every module") {
  InspectReport report = PackedReport();
  AddModules(3, report);
  const std::string page = InspectHtml(report);
  CHECK(Contains(page, "<h1>prepack inspect: <span class=\"plain\">packed folder</span></h1>"));
  CHECK(Contains(page, "<dt>Path</dt><dd>&lt;packed&gt;</dd>"));
  CHECK(Contains(page, "<dt>Made by</dt><dd>prepack 1.2.3</dd>"));
  CHECK(Contains(page, "<dt>Source</dt><dd>../source</dd>"));
  CHECK(Contains(page, "<dt>Model of the hub</dt><dd>acme/model@aaaa"));
  CHECK(Contains(page, "<dt>Fingerprint of the source</dt><dd>abc</dd>"));
  CHECK(Contains(page, "<dt>Options</dt><dd>--fuse</dd>"));
  CHECK(Contains(page,
                 "<tr><td>w4a16 group 32 symmetric</td><td>zentorch/woq</td>"
                 "<td class=\"number\" data-v=\"3\">3</td>"));
  CHECK(Contains(page, "<td>1 tensor of F32</td><td>not packed</td>"));
  CHECK(Contains(page, "<td class=\"number\" data-v=\"1234\">1.2 kB</td>"));
  CHECK(Contains(page, "<title>layers.2.up: 4.5 bits</title>"));
  CHECK(Contains(page, "<td>layers.1.up</td>"));
  CHECK(Contains(page, "<summary><h2>Tensors</h2></summary>"));
  CHECK_FALSE(Contains(page, "how many"));
  CHECK_FALSE(Contains(page, "What each target would take"));
}

TEST_CASE("sizes of modules are drawn in units that fit them") {
  InspectReport report;
  AddModules(2, report);
  report.modules[0].bytes = 592;
  report.modules[1].bytes = 999'999;
  CHECK(Contains(InspectHtml(report), "<title>layers.0.up: 0.592 kB</title>"));
  report.modules[1].bytes = 1'000'000;
  CHECK(Contains(InspectHtml(report), "<title>layers.1.up: 1 MB</title>"));
}

TEST_CASE("what a target leaves is on the page with its reason") {
  InspectReport report;
  AddModules(1, report);
  report.targets = {{.target = "onednn",
                     .modules = 1,
                     .layouts = {},
                     .left = {{.why = "K < 3", .first = "layers.0.up", .modules = 1}}}};
  const std::string page = InspectHtml(report);
  CHECK(Contains(page, "<td>onednn</td><td class=\"unsure\">0 of 1</td>"));
  CHECK(Contains(page, "<li>onednn would leave 1 module as stored: K &lt; 3</li>"));
  CHECK(Contains(page, "<td>1 tensor of F32</td><td>not quantized</td>"));
}

TEST_CASE("very many modules and tensors are folded") {
  InspectReport report = PackedReport();
  AddModules(10'001, report);
  const std::string page = InspectHtml(report);
  CHECK(CountOf(page, "<td>layers.{0..10000}.up</td><td class=\"number\" data-v=\"10001\">") == 1);
  CHECK(CountOf(page, "<td>layers.{0..10000}.up.weight</td>") == 1);
  CHECK(CountOf(page, "<td>norm.weight</td>") == 1);
  CHECK_FALSE(Contains(page, "<td>layers.1.up</td>"));
}

}  // namespace
}  // namespace prepack::testing
