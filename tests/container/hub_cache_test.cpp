#include "prepack/container/hub_cache.h"

#include <fstream>
#include <string>

#include "catch.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

const std::string kCommit = std::string(39, '0') + "f";

void PutHubFile(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST_CASE("names of the hub are those that the hub allows") {
  CHECK(ParseHubName("gpt2") == HubName{"gpt2", ""});
  CHECK(ParseHubName("Qwen/Qwen3-8B-AWQ") == HubName{"Qwen/Qwen3-8B-AWQ", ""});
  CHECK(ParseHubName("a/b.c_d-e@refs/pr/1") == HubName{"a/b.c_d-e", "refs/pr/1"});
  CHECK(ParseHubName("a/" + std::string(96, 'b')));
  for (const char* refused :
       {"",     "/",      "a/",     "/a",         "a/b/c",   "a//b",      "-a",
        "a-",   ".a",     "a.",     "a--b",       "a..b",    "a/b.git",   "a b",
        "a/b@", "a/b@/x", "a/b@..", "a/b@x/../y", "a/b@x\n", "\xc3\xa4/b"}) {
    CAPTURE(refused);
    CHECK_FALSE(ParseHubName(refused));
  }
  CHECK_FALSE(ParseHubName("a/" + std::string(97, 'b')));
  CHECK_FALSE(ParseHubName("a/b@" + std::string(256, 'c')));
}

TEST_CASE("a commit is forty digits in lower case") {
  CHECK(IsHubCommit(kCommit));
  CHECK_FALSE(IsHubCommit(kCommit.substr(1)));
  CHECK_FALSE(IsHubCommit(std::string(40, 'F')));
  CHECK_FALSE(IsHubCommit(std::string(40, '/')));
}

TEST_CASE("a snapshot knows its model by its place") {
  const TempFolder temp;
  const auto origin = [&](const std::string& path) {
    fs::create_directories(temp.path() / path);
    return Value(HubOriginOf(temp.path() / path));
  };
  CHECK(origin("models--a--b/snapshots/" + kCommit) == HubOrigin{"a/b", kCommit});
  CHECK(origin("models--gpt2/snapshots/" + kCommit) == HubOrigin{"gpt2", kCommit});
  CHECK_FALSE(origin("models--a--b/snapshots/main"));
  CHECK_FALSE(origin("datasets--a--b/snapshots/" + kCommit));
  CHECK_FALSE(origin("models--a--b--c/snapshots/" + kCommit));
  CHECK_FALSE(origin("models--/snapshots/" + kCommit));
  CHECK_FALSE(origin("models--a--b/blobs/" + kCommit));
  CHECK_FALSE(HubOriginOf(temp.path() / "nothing").ok());
}

TEST_CASE("a list of files that cannot be read is as good as none") {
  const TempFolder temp;
  const fs::path model = temp.path() / "models--a--b";
  PutHubFile(model / "snapshots" / kCommit / "config.json", "{}");
  PutHubFile(model / "refs" / "main", kCommit + "\n");
  const HubName name{"a/b", ""};
  CHECK(Value(FindSnapshot(temp.path(), name)) == model / "snapshots" / kCommit);
  const fs::path list = model / "trees" / (kCommit + ".json");
  for (const char* text : {"", "[]", "{}", R"({"format_version": 2, "files": {"config.json": {}}})",
                           R"({"format_version": 1, "files": []})"}) {
    CAPTURE(text);
    PutHubFile(list, text);
    CHECK(FindSnapshot(temp.path(), name).ok());
  }
  PutHubFile(list, R"({"format_version": 1, "files": {
      "model.safetensors": {}, "consolidated.safetensors": {}, "tokenizer.json": {},
      "original/a.safetensors": {}}})");
  const Result<fs::path> missing = FindSnapshot(temp.path(), name);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.status().kind() == ErrorKind::kMalformed);
  CHECK(missing.status().found() == "no model.safetensors");
}

}  // namespace
}  // namespace prepack::testing
