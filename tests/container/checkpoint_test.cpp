#include "prepack/container/checkpoint.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "container/safetensors_bytes.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

using Strings = std::vector<std::string>;
using Shape = std::vector<uint64_t>;

// A file with these tensors of two bytes each: U8 [2], filled with the first letter of the name.
std::string Shard(const Strings& names) {
  std::string json = "{";
  std::string data;
  for (const std::string& name : names) {
    if (!data.empty()) json += ',';
    json += '"' + name + R"(":{"dtype":"U8","shape":[2],"data_offsets":[)" +
            std::to_string(data.size()) + ',' + std::to_string(data.size() + 2) + "]}";
    data.append(2, name[0]);
  }
  return SafetensorsBytes(json + '}', data);
}

constexpr const char* kIndex = "model.safetensors.index.json";

// A sound checkpoint of two shards.
class Sample {
 public:
  Sample() {
    Put("config.json", R"({"model_type":"llama"})");
    Put("1.safetensors", Shard({"a", "b"}));
    Put("2.safetensors", Shard({"c"}));
    Put(kIndex, R"({"metadata":{"total_size":6},"weight_map":)"
                R"({"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors"}})");
  }

  void Put(const std::string& name, const std::string& bytes) {
    fs::remove_all(folder_ / name);
    RequireOk(WriteTextFile(folder_ / name, bytes));
  }
  void PutMap(const std::string& weight_map) {
    Put(kIndex, R"({"weight_map":)" + weight_map + "}");
  }
  void Remove(const std::string& name) { REQUIRE(fs::remove(folder_ / name)); }
  fs::path path() const { return folder_.path(); }
  Result<Checkpoint> Open() const { return Checkpoint::Open(path()); }
  void CheckMalformed(std::string_view text) const {
    CheckError(Open().status(), ErrorKind::kMalformed, text);
  }

 private:
  TempFolder folder_;
};

std::string ReadAll(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor* tensor = checkpoint.Find(name);
  REQUIRE(tensor != nullptr);
  std::string bytes(tensor->bytes, '?');
  RequireOk(checkpoint.Read(*tensor, 0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

TEST_CASE("a sharded checkpoint is opened as a whole") {
  const Sample sample;
  const Checkpoint checkpoint = Value(sample.Open());
  CHECK(checkpoint.path() == sample.path());
  CHECK(checkpoint.config().dump() == R"({"model_type":"llama"})");
  REQUIRE(checkpoint.files().size() == 2);
  CHECK(checkpoint.files()[1].name == "2.safetensors");
  CHECK(checkpoint.tensors().size() == 3);
  CHECK(checkpoint.total_bytes() == 6);
  CHECK(ReadAll(checkpoint, "a") == "aa");
  CHECK(ReadAll(checkpoint, "b") == "bb");
  CHECK(ReadAll(checkpoint, "c") == "cc");
  CHECK(checkpoint.Find("d") == nullptr);
  CHECK(checkpoint.Where(*checkpoint.Find("c")) == "2.safetensors: tensor c");
  CHECK(checkpoint.side_files().empty());
}

TEST_CASE("reads stay inside their tensor") {
  const Sample sample;
  const Checkpoint checkpoint = Value(sample.Open());
  const StoredTensor& a = *checkpoint.Find("a");
  std::array<std::byte, 3> out{};
  RequireOk(checkpoint.Read(a, 1, std::span(out).first(1)));
  CHECK(out[0] == std::byte{'a'});
  RequireOk(checkpoint.Read(a, 2, std::span(out).first(0)));
  CheckError(checkpoint.Read(a, 0, out), ErrorKind::kUsage,
             "1.safetensors: tensor a: read outside the tensor (found 3 bytes at 0, expected at "
             "most 2 bytes)");
  CheckError(checkpoint.Read(a, 2, std::span(out).first(1)), ErrorKind::kUsage, "outside");
  CheckError(checkpoint.Read(a, UINT64_MAX, std::span(out).first(2)), ErrorKind::kUsage, "outside");
  const auto none = [](const std::byte*) {};
  CheckError(checkpoint.Visit(a, 1, 2, none), ErrorKind::kUsage, "(found 2 bytes from 1, expected");
  CheckError(checkpoint.Visit(a, 3, 0, none), ErrorKind::kUsage, "outside");
  const auto runs = std::span(out).first(2);
  RequireOk(checkpoint.ReadRuns(a, {.offset = 0, .run_bytes = 1, .stride = 1, .runs = 2}, runs));
  CheckError(checkpoint.ReadRuns(a, {.offset = 1, .run_bytes = 1, .stride = 1, .runs = 2}, runs),
             ErrorKind::kUsage, "(found 2 runs of 1 bytes from 1, expected");
  for (const uint64_t stride : {uint64_t{2}, UINT64_MAX}) {
    CheckError(
        checkpoint.ReadRuns(a, {.offset = 0, .run_bytes = 1, .stride = stride, .runs = 2}, runs),
        ErrorKind::kUsage, "outside");
  }
}

TEST_CASE("a shard that shrinks after it was opened is noticed") {
  const Sample sample;
  const Checkpoint checkpoint = Value(sample.Open());
  fs::resize_file(sample.path() / "1.safetensors", 60);
  std::array<std::byte, 2> out{};
  CheckError(checkpoint.Read(*checkpoint.Find("b"), 0, out), ErrorKind::kMalformed,
             "1.safetensors: the file ended early");
}

TEST_CASE("config and index are optional where one file holds everything") {
  Sample sample;
  sample.Remove("config.json");
  sample.Remove(kIndex);
  sample.Remove("2.safetensors");
  const Checkpoint checkpoint = Value(sample.Open());
  CHECK(checkpoint.config() == Json::object());
  CHECK(checkpoint.tensors().size() == 2);
}

TEST_CASE("a single file is opened without its folder") {
  Sample sample;
  sample.Put("config.json", "broken");
  const Checkpoint checkpoint = Value(Checkpoint::Open(sample.path() / "1.safetensors"));
  CHECK(checkpoint.config() == Json::object());
  CHECK(checkpoint.side_files().empty());
  CHECK(ReadAll(checkpoint, "b") == "bb");
  CHECK(checkpoint.Where(*checkpoint.Find("b")) == "1.safetensors: tensor b");
}

TEST_CASE("side files are what is carried over") {
  Sample sample;
  for (const char* name :
       {"tokenizer.json", "README.md", "generation_config.json", ".gitattributes",
        "pytorch_model.bin", "pytorch_model.bin.index.json", "model.gguf", "x.pt", "x.pth",
        "x.onnx", "tf_model.h5", "flax_model.msgpack", "prepack.json", "._1.safetensors"})
    sample.Put(name, "x");
  fs::create_directory(sample.path() / "figures");
  sample.Put(".blob", "x");
  fs::create_symlink(".blob", sample.path() / "merges.txt");
  CHECK(Value(sample.Open()).side_files() ==
        Strings{"README.md", "generation_config.json", "merges.txt", "tokenizer.json"});
}

TEST_CASE("what is not carried over is listed") {
  Sample sample;
  fs::create_directories(sample.path() / "onnx" / "inner");
  fs::create_directory(sample.path() / ".cache");
  fs::create_directory_symlink("/", sample.path() / "everything");
  for (const char* name : {"pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json",
                           ".gitattributes", "model.gguf", "notes.txt"}) {
    RequireOk(WriteTextFile(sample.path() / name, "x"));
  }
  const Checkpoint checkpoint = Value(sample.Open());
  CHECK(checkpoint.left_out() == Strings{"everything/", "model.gguf", "onnx/",
                                         "pytorch_model-00001-of-00002.bin",
                                         "pytorch_model.bin.index.json"});
  const Strings& carried = checkpoint.side_files();
  CHECK(std::ranges::find(carried, "notes.txt") != carried.end());
}

TEST_CASE("Mistral's own copy of a model is left out, beside shards with and without an index") {
  Sample sample;
  const std::string consolidated_index =
      R"({"weight_map":{"x":"consolidated-00001-of-00002.safetensors",)"
      R"("y":"consolidated-00002-of-00002.safetensors"}})";
  sample.Put("consolidated.safetensors.index.json", consolidated_index);
  sample.Put("consolidated-00001-of-00002.safetensors", Shard({"x"}));
  sample.Put("consolidated-00002-of-00002.safetensors", Shard({"y"}));
  const Strings copies = {"consolidated-00001-of-00002.safetensors",
                          "consolidated-00002-of-00002.safetensors",
                          "consolidated.safetensors.index.json"};
  CHECK(Value(sample.Open()).left_out() == copies);
  CHECK(Value(sample.Open()).tensors().size() == 3);

  sample.Remove(kIndex);
  sample.Remove("2.safetensors");
  CHECK(Value(sample.Open()).left_out() == copies);
  CHECK(Value(sample.Open()).tensors().size() == 2);

  // Nothing but the copy: then it is the model.
  sample.Remove("1.safetensors");
  CHECK(Value(sample.Open()).left_out().empty());
  CHECK(Value(sample.Open()).tensors().size() == 2);
}

TEST_CASE(
    "consolidated shards that the index names are shards, and so are those without a config") {
  Sample sample;
  sample.Put("consolidated.safetensors", Shard({"d"}));
  sample.PutMap(R"({"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors",)"
                R"("d":"consolidated.safetensors"})");
  CHECK(Value(sample.Open()).tensors().size() == 4);
  CHECK(Value(sample.Open()).left_out().empty());
  sample.Remove(kIndex);
  sample.Remove("2.safetensors");
  CHECK(Value(sample.Open()).tensors().size() == 2);
  sample.Remove("config.json");
  sample.CheckMalformed("several .safetensors files, but no index");
}

TEST_CASE("what is no file at all is refused before anything is read") {
  Sample sample;
  REQUIRE(::mkfifo((sample.path() / "notes").c_str(), 0600) == 0);
  sample.CheckMalformed("/notes: not a regular file (found a FIFO, expected a regular file)");
  fs::remove(sample.path() / "notes");
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = (sample.path() / "notes").string();
  REQUIRE(path.size() < sizeof(address.sun_path));
  path.copy(address.sun_path, path.size());
  REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  ::close(listener);
  sample.CheckMalformed("/notes: not a regular file (found a socket, expected a regular file)");
  fs::remove(sample.path() / "notes");
  for (const char* name : {"1.safetensors", "config.json", kIndex}) {
    INFO(name);
    Sample other;
    fs::remove(other.path() / name);
    REQUIRE(::mkfifo((other.path() / name).c_str(), 0600) == 0);
    other.CheckMalformed(std::string("/") + name + ": not a regular file (found a FIFO");
    fs::remove(other.path() / name);
    fs::create_directory(other.path() / name);
    other.CheckMalformed(std::string("/") + name + ": not a regular file (found a folder");
  }
}

TEST_CASE("shards may be links, as in the cache of the hub") {
  Sample sample;
  fs::create_directory(sample.path() / "blobs");
  fs::rename(sample.path() / "1.safetensors", sample.path() / "blobs" / "5f");
  SECTION("whole") {
    fs::create_symlink("blobs/5f", sample.path() / "1.safetensors");
    const Checkpoint checkpoint = Value(sample.Open());
    CHECK(checkpoint.files()[0].name == "1.safetensors");
    CHECK(ReadAll(checkpoint, "a") == "aa");
  }
  SECTION("to nothing") {
    fs::create_symlink("blobs/60", sample.path() / "1.safetensors");
    sample.CheckMalformed(
        "/1.safetensors: the symbolic link points to a file that does not exist. Is the "
        "download complete?");
  }
  SECTION("to nothing, opened by name") {
    fs::create_symlink("blobs/60", sample.path() / "1.safetensors");
    CheckError(Checkpoint::Open(sample.path() / "1.safetensors").status(), ErrorKind::kSystem,
               "cannot open what this symbolic link points to");
  }
}

TEST_CASE("a checkpoint that is a snapshot of a hub cache has its files in the blobs beside it") {
  const TempFolder cache;
  const fs::path snapshot = cache / "models--a--b" / "snapshots" / "77";
  fs::create_directories(snapshot);
  fs::create_directories(cache / "models--a--b" / "blobs");
  Sample sample;
  for (const char* name : {"1.safetensors", "config.json"}) {
    fs::copy(sample.path() / name, cache / "models--a--b" / "blobs" / name);
    fs::create_symlink(fs::path("../../blobs") / name, snapshot / name);
  }
  CHECK(ReadAll(Value(Checkpoint::Open(snapshot)), "a") == "aa");
  // Reached through a link of the user's own, too.
  fs::create_directory_symlink(snapshot, cache / "mine");
  CHECK(ReadAll(Value(Checkpoint::Open(cache / "mine")), "a") == "aa");
  // Another model's blobs are none of its own.
  fs::create_directories(cache / "models--c--d" / "blobs");
  RequireOk(WriteTextFile(cache / "models--c--d" / "blobs" / "x", "x"));
  fs::create_symlink("../../../models--c--d/blobs/x", snapshot / "merges.txt");
  CheckError(Checkpoint::Open(snapshot).status(), ErrorKind::kMalformed,
             "/merges.txt: the symbolic link leads out of the checkpoint");
}

TEST_CASE("links that lead out of a checkpoint are not followed, whatever their name") {
  for (const char* name : {"tokenizer.json", "config.json", "quant_config.json", "1.safetensors",
                           "1.safetensors.index.json"}) {
    INFO(name);
    const TempFolder outside;
    RequireOk(WriteTextFile(outside / "secret", "{}"));
    Sample sample;
    fs::remove(sample.path() / name);
    fs::create_symlink(outside / "secret", sample.path() / name);
    sample.CheckMalformed(std::string("/") + name +
                          ": the symbolic link leads out of the checkpoint (found " +
                          fs::canonical(outside / "secret").string() +
                          ", expected a file in this folder or in the blobs of a hub cache)");
  }
  Sample sample;
  fs::create_symlink("a.txt", sample.path() / "b.txt");
  fs::create_symlink("b.txt", sample.path() / "a.txt");
  sample.CheckMalformed("the symbolic link leads to itself");
}

TEST_CASE("paths that are no checkpoint") {
  const TempFolder folder;
  CheckError(Checkpoint::Open(folder / "no").status(), ErrorKind::kSystem,
             "/no: cannot open it: No such file or directory. Check the path");
  CheckError(Checkpoint::Open("").status(), ErrorKind::kSystem, "No such file or directory");
  CheckError(Checkpoint::Open(folder.path()).status(), ErrorKind::kMalformed,
             "no .safetensors file in the folder. prepack reads only checkpoints in the "
             "safetensors format");
  RequireOk(WriteTextFile(folder / "config.json", "{}"));
  CheckError(Checkpoint::Open(folder / "config.json").status(), ErrorKind::kUsage,
             "neither a folder nor a .safetensors file. Give the folder of the checkpoint");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CheckError(Checkpoint::Open(folder / "pipe").status(), ErrorKind::kMalformed, "found a FIFO");
  REQUIRE(::mkfifo((folder / "m.safetensors").c_str(), 0600) == 0);
  CheckError(Checkpoint::Open(folder.path()).status(), ErrorKind::kMalformed, "found a FIFO");
}

TEST_CASE("one shard of several, without an index, is an incomplete download") {
  const Sample sample;
  const TempFolder folder;
  const auto shard = sample.path() / "1.safetensors";
  fs::copy_file(shard, folder / "model-00001-of-00002.safetensors");
  CheckError(Checkpoint::Open(folder.path()).status(), ErrorKind::kMalformed,
             "only one of several shards, and no index (found model-00001-of-00002.safetensors");
  fs::rename(folder / "model-00001-of-00002.safetensors",
             folder / "model-00001-of-00001.safetensors");
  RequireOk(Checkpoint::Open(folder.path()).status());
}

TEST_CASE("weights in other files are refused by name") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "model.gguf", "GGUF"));
  CheckError(Checkpoint::Open(folder / "model.gguf").status(), ErrorKind::kUnsupported,
             "GGUF weights are not supported here (found model.gguf, expected *.safetensors). Give "
             "inspect");
  RequireOk(WriteTextFile(folder / "pytorch_model.bin", "x"));
  CheckError(Checkpoint::Open(folder.path()).status(), ErrorKind::kUnsupported,
             "GGUF weights are not supported here (found model.gguf");
  std::filesystem::remove(folder / "model.gguf");
  const Status status = Checkpoint::Open(folder.path()).status();
  CheckError(
      status, ErrorKind::kUnsupported,
      "PyTorch weights are not supported here (found pytorch_model.bin, expected *.safetensors). "
      "Convert the weights to safetensors");
  CHECK(status.id() == "container-unsupported");
}

TEST_CASE("an index of other shards is left out beside one whole model.safetensors") {
  Sample sample;
  sample.Remove("1.safetensors");
  sample.Remove("2.safetensors");
  sample.Put("model.safetensors", Shard({"a", "b", "z"}));
  const Checkpoint checkpoint = Value(sample.Open());
  CHECK(checkpoint.stale_index() == kIndex);
  CHECK(checkpoint.tensors().size() == 3);
  CHECK(checkpoint.side_files().empty());

  SECTION("not if the index names the file") {
    sample.PutMap(R"({"a":"model.safetensors","b":"model.safetensors"})");
    sample.CheckMalformed("tensor z: the tensor is not in the index");
  }
  SECTION("not if one of its shards is there: loaders would read different weights") {
    sample.Put("1.safetensors", Shard({"c"}));
    sample.CheckMalformed("/2.safetensors: the shard is missing");
  }
  SECTION("not if the file has another name, which no loader asks for first") {
    sample.Remove("model.safetensors");
    sample.Put("other.safetensors", Shard({"a"}));
    sample.CheckMalformed("/1.safetensors: the shard is missing");
  }
}

TEST_CASE("index and shards must agree") {
  Sample sample;
  SECTION("a shard is missing") {
    sample.Remove("2.safetensors");
    sample.CheckMalformed(
        "/2.safetensors: the shard is missing (expected it, as "
        "model.safetensors.index.json says). Is the download complete?");
  }
  SECTION("a shard that the index does not know") {
    sample.Put("old.safetensors", Shard({"z"}));
    sample.CheckMalformed(
        "/old.safetensors: the index does not list this shard. Move it out of "
        "the folder, or repair model.safetensors.index.json");
  }
  SECTION("a tensor that the index does not know") {
    sample.Put("2.safetensors", Shard({"c", "z"}));
    sample.CheckMalformed(
        "model.safetensors.index.json: tensor z: the tensor is not in the index "
        "(found the tensor in 2.safetensors). The index is stale");
  }
  SECTION("a tensor that no shard holds") {
    sample.Put("1.safetensors", Shard({"a"}));
    sample.CheckMalformed(
        "model.safetensors.index.json: tensor b: no shard contains the tensor "
        "(expected the tensor in 1.safetensors). The index is stale");
  }
  SECTION("a tensor that is in another shard than the index says") {
    sample.Put("1.safetensors", Shard({"a"}));
    sample.Put("2.safetensors", Shard({"b", "c"}));
    sample.CheckMalformed(
        "tensor b: the tensor is in another shard (found 2.safetensors, expected "
        "1.safetensors, as the index says). The index is stale");
  }
  SECTION("a tensor in two shards") {
    sample.Put("2.safetensors", Shard({"c", "a"}));
    sample.CheckMalformed(
        "tensor a is in two shards (found the tensor in 1.safetensors and "
        "2.safetensors). Loaders disagree");
  }
  SECTION("several files, but no index") {
    sample.Remove(kIndex);
    sample.CheckMalformed(
        "several .safetensors files, but no index (found 1.safetensors and "
        "2.safetensors, expected one file, or an index "
        "*.safetensors.index.json)");
  }
  SECTION("two indexes") {
    sample.Put("model.fp16.safetensors.index.json", "{}");
    sample.CheckMalformed(
        "more than one index in the folder (found "
        "model.fp16.safetensors.index.json, model.safetensors.index.json)");
  }
  SECTION("an index for one file") {
    sample.Remove("2.safetensors");
    sample.PutMap(R"({"a":"1.safetensors","b":"1.safetensors"})");
    CHECK(sample.Open().ok());
  }
}

TEST_CASE("an index names plain files only") {
  Sample sample;
  const std::string shard =
      GENERATE("../1.safetensors", "/etc/1.safetensors", "sub/1.safetensors", "..", ".", "",
               "1.bin", ".safetensors", "1.safetensors/", "a\\\\1.safetensors",
               "1\\u0000.safetensors", "1\\n.safetensors");
  INFO(shard);
  sample.PutMap(R"({"a":")" + shard + R"(","b":"1.safetensors","c":"2.safetensors"})");
  sample.CheckMalformed("weight_map: a: not the name of a shard (found '");
}

TEST_CASE("defects of the index") {
  Sample sample;
  SECTION("a tensor named twice") {
    sample.PutMap(R"({"a":"1.safetensors","b":"1.safetensors","a":"2.safetensors"})");
    sample.CheckMalformed("model.safetensors.index.json: byte 58: duplicate key \"a\"");
  }
  SECTION("no JSON") {
    sample.Put(kIndex, "{");
    sample.CheckMalformed("model.safetensors.index.json: byte 1: syntax error");
  }
  SECTION("not an object") {
    sample.Put(kIndex, "[]");
    sample.CheckMalformed("model.safetensors.index.json: not a JSON object (found array");
  }
  SECTION("no map") {
    sample.Put(kIndex, R"({"metadata":{}})");
    sample.CheckMalformed("model.safetensors.index.json: weight_map: the field is missing");
  }
  SECTION("a map of another type") {
    sample.PutMap("[]");
    sample.CheckMalformed("weight_map: wrong type of value, or empty (found array");
  }
  SECTION("an empty map") {
    sample.PutMap("{}");
    sample.CheckMalformed("weight_map: wrong type of value, or empty (found an empty object");
  }
  SECTION("too many shards") {
    std::string map;
    for (int i = 0; i < 100'000; ++i) {
      map += (map.empty() ? "{" : ",") + fmt::format("\"{0}\":\"{0}.safetensors\"", i);
    }
    sample.PutMap(map + "}");
    sample.CheckMalformed("index.json: weight_map: too many shards (expected at most 99999)");
  }
  SECTION("a shard that is no text") {
    sample.PutMap(R"({"a":1})");
    sample.CheckMalformed(
        "weight_map: a: wrong type of value (found number, expected the name of "
        "a shard)");
  }
}

TEST_CASE("configs may have the numbers that only Python writes, an index may not") {
  Sample sample;
  sample.Put("config.json", R"({"rope_scaling":{"factor":Infinity},"x":[NaN,-Infinity]})");
  sample.Put("quant_config.json", R"({"y":NaN})");
  const Checkpoint checkpoint = Value(sample.Open());
  CHECK(std::isinf(checkpoint.config()["rope_scaling"]["factor"].get<double>()));
  CHECK(std::isnan(checkpoint.side_configs().at("quant_config.json")["y"].get<double>()));
  sample.PutMap(R"({"a":NaN})");
  sample.CheckMalformed("model.safetensors.index.json: byte ");
}

TEST_CASE("defects of the configuration") {
  Sample sample;
  SECTION("not an object") {
    sample.Put("config.json", "[]");
    sample.CheckMalformed("config.json: not a JSON object (found array, expected an object)");
  }
  SECTION("a duplicate key") {
    sample.Put("config.json", R"({"a":1,"a":2})");
    sample.CheckMalformed("config.json: byte 10: duplicate key \"a\"");
  }
  SECTION("too large") {
    sample.Put("config.json", "{}");
    fs::resize_file(sample.path() / "config.json", (16 << 20) + 1);
    sample.CheckMalformed(
        "config.json: the file is too large (found "
        "16777217 bytes, expected at most 16777216)");
  }
  SECTION("a folder") {
    sample.Remove("config.json");
    fs::create_directory(sample.path() / "config.json");
    sample.CheckMalformed("config.json: not a regular file (found a folder");
  }
}

TEST_CASE("a defect of a shard names the shard") {
  Sample sample;
  sample.Put("2.safetensors", Shard({"c"}) + "x");
  sample.CheckMalformed("/2.safetensors: 1 byte after the last tensor");
}

TEST_CASE("real checkpoints are read") {
  struct Known {
    const char* folder;
    size_t files;
    uint64_t total_bytes;
    Shape scale_shape;
    const char* packed_start;  // of down_proj.weight_packed
  };
  const Known known = GENERATE(values<Known>({
      {"ct-w4a16-channel-sym", 1, 1485936, {384, 1}, "\x8c\x76\xb8\x9a\xa6\x88\x79\x76"},
      {"ct-w4a16-g128-sharded", 3, 1510768, {384, 12}, "\x8e\x64\xd7\x9b\xc4\x78\x69\x75"},
      {"ct-w4a16-g128-sym", 1, 1510768, {384, 12}, "\x8e\x64\xd7\x9b\xc4\x78\x69\x75"},
  }));
  INFO(known.folder);
  const Checkpoint checkpoint = Value(Checkpoint::Open(Fixture("checkpoints") / known.folder));
  CHECK(checkpoint.files().size() == known.files);
  CHECK(checkpoint.tensors().size() == 25);
  CHECK(checkpoint.total_bytes() == known.total_bytes);
  CHECK(checkpoint.config()["architectures"][0] == "LlamaForCausalLM");
  CHECK(checkpoint.config()["quantization_config"]["quant_method"] == "compressed-tensors");

  const std::string prefix = "model.layers.0.mlp.down_proj.";
  const StoredTensor& packed = *checkpoint.Find(prefix + "weight_packed");
  CHECK(packed.dtype == DType::kI32);
  CHECK(packed.shape == Shape{384, 192});
  CHECK(ReadAll(checkpoint, prefix + "weight_packed").substr(0, 8) == known.packed_start);
  const StoredTensor& scale = *checkpoint.Find(prefix + "weight_scale");
  CHECK(scale.dtype == DType::kBF16);
  CHECK(scale.shape == known.scale_shape);
  CHECK(ReadAll(checkpoint, prefix + "weight_shape") ==
        std::string("\x80\x01\0\0\0\0\0\0\0\x06\0\0\0\0\0\0", 16));
}

TEST_CASE("a real checkpoint with zero points and one with side files") {
  const Checkpoint asymmetric = Value(Checkpoint::Open(Fixture("checkpoints/ct-w4a16-g32-asym")));
  const StoredTensor* zero = asymmetric.Find("model.layers.0.mlp.down_proj.weight_zero_point");
  REQUIRE(zero != nullptr);
  CHECK(zero->dtype == DType::kI32);
  CHECK(zero->shape == Shape{48, 48});

  const Checkpoint symmetric = Value(Checkpoint::Open(Fixture("checkpoints/ct-w4a16-g128-sym")));
  CHECK(symmetric.side_files() == Strings{"tokenizer.json", "tokenizer_config.json"});
}

}  // namespace
}  // namespace prepack::testing
