// Manifests that lie about a tiny packed folder, and have a hash that fits: each bit is flipped,
// and each value is replaced by others.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "prepack/io/output_folder.h"
#include "status_matchers.h"
#include "verify/tiny_folder.h"

namespace prepack::testing {
namespace {

// A folder cannot tell by what program, with which options, and from which place it was made: so
// these fields are believed, and nothing that is computed depends on them. Without `run`, --resume
// makes the folder again; without `source/path`, the source is named with --source.
const std::set<std::string> kBelieved = {"replace /prepack_version", "remove /run",
                                         "replace /run/options",     "replace /run/plan",
                                         "replace /run/prepack",     "replace /run/source",
                                         "remove /source/path",      "replace /source/path"};

TEST_CASE("manifests with a flipped bit are not passed, though their hash fits") {
  const TinyFolder folder;
  const std::string manifest = folder.Text(std::string(kManifestName));
  const std::string text = WithoutHash(manifest);
  std::set<std::string> passed;
  size_t refused = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 7);
    INFO("byte " << at << ", " << damaged.substr(at < 10 ? 0 : at - 10, 20));
    folder.Write(std::string(kManifestName), Hashed(damaged));
    if (Passes(folder)) {
      passed.insert(FirstDifference(text + "}", damaged + "}"));
    } else {
      ++refused;
    }
    ReadByOthers(folder);
  }
  CHECK(passed == kBelieved);
  CHECK(refused > 1000);
}

// Another value for each that can be had in its place.
std::vector<Json> Others(const Json& value) {
  std::vector<Json> others = {Json(nullptr), Json::array()};
  if (value.is_boolean()) others.push_back(!value.get<bool>());
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    for (const uint64_t other : {number + 1, number - 1, number * 2, uint64_t{0}}) {
      others.push_back(other);
    }
    others.insert(others.end(), {Json(-1), Json(0.5), Json(uint64_t{1} << 62)});
  }
  if (value.is_string()) {
    others.push_back("");
    others.push_back(value.get<std::string>() + "x");
  }
  if (value.is_array() && !value.empty()) {
    Json shorter = value;
    shorter.erase(shorter.size() - 1);
    others.push_back(shorter);
    Json longer = value;
    longer.push_back(value.back());
    others.push_back(longer);
  }
  std::erase(others, value);
  // Readers in other languages take this for another type.
  if (value.is_number_unsigned()) others.push_back(static_cast<double>(value.get<uint64_t>()));
  return others;
}

struct ValueLie {
  std::string where;  // "replace /modules/a/n"
  Json manifest;
};

// Every value of `whole` under `at` replaced by each of its others, and left out.
void AddLies(const Json& whole, const Json::json_pointer& at, std::vector<ValueLie>& lies) {
  const Json& value = whole[at];
  if (!at.empty()) {
    for (const Json& other : Others(value)) {
      lies.push_back({fmt::format("replace {}", at.to_string()), whole});
      lies.back().manifest[at] = other;
    }
    lies.push_back({fmt::format("remove {}", at.to_string()), whole});
    Json& without = lies.back().manifest;
    Json& parent = without[at.parent_pointer()];
    if (parent.is_object()) {
      parent.erase(at.back());
    } else {
      parent.erase(std::stoul(at.back()));
    }
  }
  if (value.is_object()) {
    for (const auto& item : value.items()) AddLies(whole, at / item.key(), lies);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) AddLies(whole, at / i, lies);
  }
}

// With a hash that fits.
std::string LyingText(const Json& manifest) {
  std::string text = manifest.dump(2);
  text.resize(text.rfind('\n'));
  return Hashed(text);
}

// Tries every lie, and returns those that verify did not find.
std::set<std::string> BelievedLies(const TinyFolder& folder) {
  const std::string text = folder.Text(std::string(kManifestName));
  Json manifest = Json::parse(text);
  manifest.erase("manifest_xxh3_128");
  folder.Write(std::string(kManifestName), LyingText(manifest));
  REQUIRE(Passes(folder));
  std::vector<ValueLie> lies;
  AddLies(manifest, Json::json_pointer(), lies);
  REQUIRE(lies.size() > 300);
  std::set<std::string> believed;
  for (const ValueLie& lie : lies) {
    INFO(lie.where << " " << lie.manifest.dump());
    folder.Write(std::string(kManifestName), LyingText(lie.manifest));
    if (Passes(folder)) believed.insert(lie.where);
    ReadByOthers(folder);
  }
  folder.Write(std::string(kManifestName), text);
  REQUIRE(Passes(folder));
  return believed;
}

// Why a module was dequantized is for people to read.
const std::string kReason = "replace /dequantized/a";

TEST_CASE("manifests of other schemes that lie are not passed") {
  const TestCheckpoint w4 = TinyModel({"a"});
  const TestCheckpoint w8 = TinyW8A8Model({"a"});
  const auto example = GENERATE_COPY(table<std::string, TestCheckpoint, PlanOptions>({
      {"fused", TinyModel({"q_proj", "k_proj", "v_proj"}), {.target = "vllm-cpu", .fuse = true}},
      {"w4a8",
       w4,
       {.target = "vllm-cpu", .schemes = {{.pattern = "", .scheme = WantedScheme::kW4A8}}}},
      {"zentorch", w4, {.target = "zentorch"}},
      {"onednn w4a16", w4, {.target = "onednn"}},
      {"w8a8", w8, {.target = "vllm-cpu"}},
      {"onednn w8a8", w8, {.target = "onednn"}},
      {"onednn w8a8, plain", w8, {.target = "onednn", .onednn_form = OneDnnForm::kPlain}},
      {"dequantized",
       w8,
       {.target = "vllm-cpu",
        .schemes = {{.pattern = "", .scheme = WantedScheme::kW8A16}},
        .fallback = Fallback::kDequantize}},
  }));
  INFO(std::get<0>(example));
  const TinyFolder folder(std::get<1>(example), std::get<2>(example));
  std::set<std::string> believed = BelievedLies(folder);
  CHECK(believed.erase(kReason) == (std::get<0>(example) == "dequantized" ? 1 : 0));
  CHECK(believed == kBelieved);
}

}  // namespace
}  // namespace prepack::testing
