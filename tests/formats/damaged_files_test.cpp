// A tiny checkpoint of every format, cut to every length, and with every bit of its header and of
// its config flipped: read to the end, or refused, and never a crash.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/auto_round_example.h"
#include "formats/awq_example.h"
#include "formats/ct_example.h"
#include "formats/fp4_example.h"
#include "formats/fp8_example.h"
#include "formats/gptq_example.h"
#include "formats/read_helpers.h"
#include "prepack/io/file.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

struct Sound {
  const char* format;
  TestCheckpoint checkpoint;
};

std::vector<Sound> SoundCheckpoints() {
  SplitMix64 random(1);
  const auto gemm = RandomAwqNumbers(8, 64, 32, random);
  const auto gemv = RandomAwqNumbers(4, 512, 64, random);
  return {{"ct symmetric", SymmetricExample()},
          {"ct asymmetric", AsymmetricExample()},
          {"gptq", SmallGptq()},
          {"awq gemm", AwqCheckpoint(AwqGemmTensors(kAwqModule, gemm), "gemm", 32)},
          {"awq gemv", AwqCheckpoint(AwqGemvTensors(kAwqModule, gemv), "gemv", 64)},
          {"auto-round gptq", ArGptq()},
          {"auto-round awq", ArAwq()},
          {"fp8 blocks", Fp8Blocks()},
          {"fp8 static", Fp8Static()},
          {"fp8 stacked experts", Fp8ExpertsTransposed()},
          {"fp8 split experts", Fp8SplitExperts()},
          {"modelopt", ModelOptFp8()},
          {"quark", QuarkFp8()},
          {"ct mxfp4", CtMxfp4()},
          {"ct nvfp4", CtNvfp4()},
          {"ct mxfp8", CtMxfp8()},
          {"modelopt nvfp4", ModelOptNvfp4()},
          {"modelopt nvfp4 experts", ModelOptNvfp4Stack()},
          {"quark mxfp4", QuarkMxfp4()},
          {"quark nvfp4", QuarkNvfp4()},
          {"minimax mxfp8", MinimaxMxfp8()},
          {"deepseek v4", DeepSeekV4()},
          {"gpt-oss", GptOssMxfp4()}};
}

Status ReadModule(const QuantizedLinear& linear) {
  std::vector<std::byte> codes(PanelBytes(linear.scheme().code, {0, linear.n(), 0, linear.k()}));
  Status status = linear.ReadCodes({0, linear.n(), 0, linear.k()}, codes);
  if (!status.ok()) return status;
  std::vector<float> scales(linear.n() * linear.groups());
  status = linear.ReadScales(0, linear.n(), scales);
  if (!status.ok()) return status;
  std::vector<uint8_t> zero_points(linear.n() * linear.groups());
  status = linear.ReadZeroPoints(0, linear.n(), zero_points);
  if (!status.ok()) return status;
  if (const auto order = linear.KOrder(); !order.ok()) return order.status();
  return linear.CountStrayBits().status();
}

// Everything that there is to be read.
Status ReadAll(const fs::path& folder) {
  const Result<OpenedModel> opened = OpenModel(folder);
  if (!opened.ok()) return opened.status();
  for (const auto& module : opened->model.modules) {
    if (Status status = ReadModule(*module); !status.ok()) return status;
  }
  return {};
}

// With a new file: one that is cut to nothing and written again, ext4 sends to the disk at once.
void Overwrite(const fs::path& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_CASE("a checkpoint that is cut anywhere is malformed") {
  for (const Sound& sound : SoundCheckpoints()) {
    const TempFolder folder;
    sound.checkpoint.Write(folder.path());
    RequireOk(ReadAll(folder.path()));
    for (const char* name : {"model.safetensors", "config.json"}) {
      const std::string whole = Value(ReadTextFile(folder / name, 1 << 20));
      for (size_t length = 0; length < whole.size(); ++length) {
        INFO(sound.format << ": " << name << " cut to " << length << " bytes");
        Overwrite(folder / name, whole.substr(0, length));
        const Status status = ReadAll(folder.path());
        REQUIRE_FALSE(status.ok());
        REQUIRE(status.kind() == ErrorKind::kMalformed);
      }
      Overwrite(folder / name, whole);
    }
    RequireOk(ReadAll(folder.path()));
  }
}

// How many bytes of a safetensors file come before the data; all of another file.
size_t HeaderBytes(const std::string& name, const std::string& bytes) {
  if (!name.ends_with(".safetensors")) return bytes.size();
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return sizeof length + length;
}

TEST_CASE(
    "a checkpoint with any bit of its descriptions flipped is read, or refused with a reason") {
  for (const Sound& sound : SoundCheckpoints()) {
    const TempFolder folder;
    sound.checkpoint.Write(folder.path());
    size_t refused = 0;
    for (const char* name : {"model.safetensors", "config.json"}) {
      const std::string whole = Value(ReadTextFile(folder / name, 1 << 20));
      const size_t bits = 8 * HeaderBytes(name, whole);
      for (size_t bit = 0; bit < bits; ++bit) {
        INFO(sound.format << ": bit " << bit % 8 << " of byte " << bit / 8 << " of " << name);
        std::string damaged = whole;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
        Overwrite(folder / name, damaged);
        const Status status = ReadAll(folder.path());
        if (status.ok()) continue;
        ++refused;
        const bool expected =
            status.kind() == ErrorKind::kMalformed || status.kind() == ErrorKind::kUnsupported;
        INFO(status.ToString());
        REQUIRE(expected);
        REQUIRE_FALSE(status.what().empty());
      }
      Overwrite(folder / name, whole);
    }
    CHECK(refused > 1000);
  }
}

}  // namespace
}  // namespace prepack::testing
