#include "prepack/container/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "catch.h"
#include "container/header_bytes.h"
#include "prepack/base/parallel.h"
#include "prepack/base/random.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

TensorInfo Tensor(std::string name, DType dtype, std::vector<uint64_t> shape) {
  return {std::move(name), dtype, std::move(shape), 0, 0};
}

std::vector<std::string> NamesOf(const SafetensorsHeader& header) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : header.tensors) names.push_back(tensor.name);
  return names;
}

std::string WholeFile(const std::filesystem::path& path) {
  return Value(ReadTextFile(path, uint64_t{1} << 30));
}

TEST_CASE("a planned file, byte by byte") {
  const TempFolder folder;
  SafetensorsPlan plan =
      Value(PlanSafetensors({Tensor("odd", DType::kU8, {3}), Tensor("w", DType::kI32, {4, 4}),
                             Tensor("s", DType::kBF16, {5}), Tensor("none", DType::kF32, {0, 7})},
                            {{"k", "v\"\n"}, {"format", "pt"}}));
  CHECK(NamesOf(plan.header) == std::vector<std::string>{"w", "none", "s", "odd"});
  CHECK(plan.header.data_start == 4096);
  CHECK(plan.file_bytes == 4096 + 64 + 10 + 3);

  SafetensorsWriter writer = Value(SafetensorsWriter::Create(folder / "f", std::move(plan)));
  const std::string data =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!?"
      "SSssSSssSSodd";
  const auto part = [&data](size_t begin, size_t end) {
    return std::as_bytes(std::span(data)).subspan(begin, end - begin);
  };
  RequireOk(writer.Write(3, 0, part(74, 77)));
  RequireOk(writer.Write(0, 32, part(32, 64)));
  RequireOk(writer.Write(0, 0, part(0, 32)));
  RequireOk(writer.Write(2, 0, part(64, 74)));
  RequireOk(writer.Write(1, 0, {}));
  RequireOk(writer.Sync());

  std::string expected = R"({"__metadata__":{"format":"pt","k":"v\"\n"},)"
                         R"("w":{"dtype":"I32","shape":[4,4],"data_offsets":[0,64]},)"
                         R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[64,64]},)"
                         R"("s":{"dtype":"BF16","shape":[5],"data_offsets":[64,74]},)"
                         R"("odd":{"dtype":"U8","shape":[3],"data_offsets":[74,77]}})";
  expected.resize(4088, ' ');
  CHECK(WholeFile(folder / "f") == std::string("\xF8\x0F\0\0\0\0\0\0", 8) + expected + data);
}

TEST_CASE("a file without tensors or metadata") {
  const TempFolder folder;
  SafetensorsPlan plan = Value(PlanSafetensors({}, {}));
  CHECK(plan.file_bytes == 4096);
  RequireOk(SafetensorsWriter::Create(folder / "f", std::move(plan)).status());
  const SafetensorsHeader header =
      Value(ReadSafetensorsHeader(Value(File::OpenForRead(folder / "f"))));
  CHECK(header.tensors.empty());
  CHECK(header.data_start == 4096);
}

TEST_CASE("the header fills its pages exactly") {
  // Names of growing length move the end of the header over the border of a page.
  std::set<uint64_t> starts;
  for (size_t length = 3900; length < 4096; ++length) {
    const SafetensorsPlan plan =
        Value(PlanSafetensors({Tensor(std::string(length, 'n'), DType::kU8, {1})}, {}));
    CHECK(plan.header.data_start % 4096 == 0);
    CHECK(HeaderBytes(plan).size() == plan.header.data_start);
    starts.insert(plan.header.data_start);
  }
  CHECK(starts == std::set<uint64_t>{4096, 8192});
}

// The heart of the plan: whatever the tensors, each is aligned to its element at least, and those
// of a size that permits it, with the first of the others, to 64 bytes.
TEST_CASE("random sets of tensors are laid out aligned") {
  SplitMix64 random(1);
  constexpr DType kDTypes[] = {DType::kBool, DType::kF4,  DType::kF6E2M3, DType::kU8,
                               DType::kBF16, DType::kI32, DType::kF32,    DType::kI64};
  for (int round = 0; round < 500; ++round) {
    std::vector<TensorInfo> tensors;
    const uint64_t count = random.Below(40);
    for (uint64_t i = 0; i < count; ++i) {
      const DType dtype = kDTypes[random.Below(std::size(kDTypes))];
      // Multiples of 4 elements, so that sub-byte types end on a byte.
      const uint64_t unit = DTypeBits(dtype) < 8 ? 4 : 1;
      const uint64_t rows = random.Below(3) == 0 ? 64 : random.Below(9);
      tensors.push_back(Tensor(fmt::format("t{}", i), dtype, {rows, unit * random.Below(9)}));
    }
    const SafetensorsPlan plan = Value(PlanSafetensors(tensors, {}));
    REQUIRE(plan.header.tensors.size() == tensors.size());

    uint64_t next = 0;
    bool odd_seen = false;
    std::vector<std::string> even_names;
    for (const TensorInfo& tensor : plan.header.tensors) {
      CHECK(tensor.begin == next);
      CHECK(tensor.bytes() == TensorBytes(tensor.dtype, tensor.shape));
      next = tensor.end;
      const bool is_even = tensor.bytes() % 64 == 0;
      if (is_even || !odd_seen) CHECK((plan.header.data_start + tensor.begin) % 64 == 0);
      CHECK(tensor.begin % std::max<uint64_t>(DTypeBits(tensor.dtype) / 8, 1) == 0);
      if (is_even) {
        CHECK_FALSE(odd_seen);
        even_names.push_back(tensor.name);
      }
      odd_seen = odd_seen || !is_even;
    }
    CHECK(plan.file_bytes == plan.header.data_start + next);

    std::vector<std::string> given;
    for (const TensorInfo& tensor : tensors)
      if (*TensorBytes(tensor.dtype, tensor.shape) % 64 == 0) given.push_back(tensor.name);
    CHECK(even_names == given);

    const SafetensorsHeader read =
        Value(ParseSafetensorsHeader(HeaderBytes(plan).substr(8), next, "f"));
    CHECK(read.data_start == plan.header.data_start);
    CHECK(NamesOf(read) == NamesOf(plan.header));
  }
}

TEST_CASE("small tensors go by falling alignment, equal ones in the given order") {
  const SafetensorsPlan plan =
      Value(PlanSafetensors({Tensor("one", DType::kU8, {1}), Tensor("four", DType::kU8, {4}),
                             Tensor("also-one", DType::kU8, {7}), Tensor("32", DType::kU8, {96}),
                             Tensor("two", DType::kU8, {6}), Tensor("also-four", DType::kU8, {12}),
                             Tensor("64", DType::kU8, {128})},
                            {}));
  CHECK(NamesOf(plan.header) ==
        std::vector<std::string>{"64", "32", "four", "also-four", "two", "one", "also-one"});
}

TEST_CASE("names of every kind come back") {
  const TempFolder folder;
  const std::vector<std::string> names = {"",
                                          "a/../b",
                                          "quote\" back\\slash",
                                          "é\u4e2d\U0001F600",
                                          "__metadata",
                                          std::string(kMaxTensorNameBytes, 'n')};
  std::vector<TensorInfo> tensors;
  tensors.reserve(names.size());
  for (const std::string& name : names) tensors.push_back(Tensor(name, DType::kF32, {1}));
  const std::map<std::string, std::string> metadata = {{"\x01 control", "é\t\"\\"}, {"", ""}};
  RequireOk(
      SafetensorsWriter::Create(folder / "f", Value(PlanSafetensors(tensors, metadata))).status());
  const SafetensorsHeader header =
      Value(ReadSafetensorsHeader(Value(File::OpenForRead(folder / "f"))));
  CHECK(NamesOf(header) == names);
  CHECK(header.metadata == metadata);
}

// Tensors of 2^60 bytes each, about the largest whose bits 64 bits can count.
std::vector<TensorInfo> Huge(int count) {
  std::vector<TensorInfo> tensors;
  for (int i = 0; i < count; ++i)
    tensors.push_back(Tensor(fmt::format("t{}", i), DType::kU8, {uint64_t{1} << 60}));
  return tensors;
}

TEST_CASE("what could not be read again is not planned") {
  const auto error = [](std::vector<TensorInfo> tensors,
                        const std::map<std::string, std::string>& metadata = {}) {
    return PlanSafetensors(std::move(tensors), metadata).status();
  };
  CheckError(error({Tensor("a", DType::kU8, {1}), Tensor("b", DType::kU8, {1}),
                    Tensor("a", DType::kF32, {1})}),
             ErrorKind::kMalformed, "output file: tensor a: the header has this name twice");
  CheckError(error({Tensor("a\n", DType::kU8, {1})}), ErrorKind::kMalformed,
             "the name contains a control character");
  CheckError(error({Tensor(std::string(kMaxTensorNameBytes + 1, 'n'), DType::kU8, {1})}),
             ErrorKind::kMalformed, "the name is too long");
  CheckError(error({Tensor("__metadata__", DType::kU8, {1})}), ErrorKind::kMalformed,
             "__metadata__");
  CheckError(error({Tensor("__metadata__", DType::kU8, {1})}, {{"k", "v"}}), ErrorKind::kMalformed,
             "__metadata__");
  CheckError(error({Tensor("\xFF", DType::kU8, {1})}), ErrorKind::kMalformed, "not valid UTF-8");
  CheckError(error({}, {{"k", "\xC3"}}), ErrorKind::kMalformed, "not valid UTF-8");
  CheckError(
      error({Tensor("a", DType::kF4, {3})}), ErrorKind::kMalformed,
      "output file: tensor a: the size overflows or is not a whole number of bytes (found F4 [3])");
  CheckError(error({Tensor("a", DType::kF32, {uint64_t{1} << 62})}), ErrorKind::kMalformed,
             "the size overflows");
  CheckError(error(Huge(16)), ErrorKind::kUnsupported, "the size of all tensors overflows");
  std::vector<TensorInfo> eight;  // 2^64 - 8 bytes
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    eight.push_back(Tensor(name, DType::kU8, {(uint64_t{1} << 61) - 1}));
  }
  CheckError(error(eight), ErrorKind::kUnsupported, "the size of the file overflows");
  CheckError(error({Tensor("a", DType::kU8, std::vector<uint64_t>(9, 1))}), ErrorKind::kMalformed,
             "too many dimensions");
  CheckError(error({}, {{"k", std::string(kMaxHeaderBytes, 'v')}}), ErrorKind::kUnsupported,
             "the header is longer than the format allows");
}

TEST_CASE("a header is given in pieces, until one is refused") {
  std::vector<TensorInfo> tensors;
  for (int i = 0; i < 4000; ++i) tensors.push_back(Tensor(fmt::format("t{}", i), DType::kU8, {1}));
  const SafetensorsPlan plan = Value(PlanSafetensors(std::move(tensors), {}));
  size_t pieces = 0;
  size_t longest = 0;
  RequireOk(plan.VisitHeader([&](uint64_t /*offset*/, std::string_view text) {
    ++pieces;
    longest = std::max(longest, text.size());
    return Status();
  }));
  CHECK(pieces > 5);
  CHECK(longest < 70000);
  size_t visited = 0;
  const Status stopped = plan.VisitHeader([&](uint64_t offset, std::string_view /*text*/) {
    ++visited;
    return offset == 0 ? Status() : Malformed("here", "enough");
  });
  CheckError(stopped, ErrorKind::kMalformed, "here: enough");
  CHECK(visited == 2);
}

TEST_CASE("a file that no disk can hold is refused before it is written") {
  const TempFolder folder;
  SafetensorsPlan plan = Value(PlanSafetensors(Huge(8), {}));
  CheckError(SafetensorsWriter::Create(folder / "f", std::move(plan)).status(), ErrorKind::kSystem,
             "File too large");
}

SafetensorsPlan TwoTensors(std::string second = "b") {
  return Value(PlanSafetensors(
      {Tensor("a", DType::kU8, {64}), Tensor(std::move(second), DType::kU8, {64})}, {}));
}

TEST_CASE("a file is opened again only when it is the planned one") {
  const TempFolder folder;
  const std::filesystem::path path = folder / "file";
  const auto reopens = [&](const SafetensorsPlan& plan) {
    return Value(SafetensorsWriter::Reopen(path, plan)).has_value();
  };
  CHECK_FALSE(reopens(TwoTensors()));  // there is none
  const std::vector<std::byte> first(64, std::byte{1});
  const std::vector<std::byte> second(64, std::byte{2});
  {
    SafetensorsWriter writer = Value(SafetensorsWriter::Create(path, TwoTensors()));
    RequireOk(writer.Write(0, 0, first));
  }
  CHECK_FALSE(reopens(TwoTensors("c")));  // another header of the same length
  {
    auto writer = Value(SafetensorsWriter::Reopen(path, TwoTensors()));
    REQUIRE(writer.has_value());
    RequireOk(writer->Write(1, 0, second));
  }
  const std::string whole = WholeFile(path);
  CHECK(whole.substr(whole.size() - 128) == std::string(64, '\1') + std::string(64, '\2'));

  std::filesystem::resize_file(path, whole.size() - 1);
  CHECK_FALSE(reopens(TwoTensors()));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  CHECK_FALSE(reopens(TwoTensors()));
  RequireOk(SafetensorsWriter::Replace(path, TwoTensors()).status());
  CHECK(reopens(TwoTensors()));
}

TEST_CASE("writes stay inside their tensor") {
  const TempFolder folder;
  SafetensorsWriter writer = Value(SafetensorsWriter::Create(
      folder / "f",
      Value(PlanSafetensors({Tensor("a", DType::kU8, {64}), Tensor("b", DType::kU8, {64})}, {}))));
  const std::string before = WholeFile(folder / "f");
  const std::vector<std::byte> bytes(65, std::byte{1});
  const std::span all(bytes);
  CheckError(writer.Write(0, 0, all), ErrorKind::kUsage,
             "f: tensor a: write outside the tensor (found 65 bytes at 0, expected at most 64");
  CheckError(writer.Write(1, 64, all.first(1)), ErrorKind::kUsage, "outside the tensor");
  CheckError(writer.Write(1, UINT64_MAX, all.first(2)), ErrorKind::kUsage, "outside the tensor");
  CheckError(writer.Write(2, 0, all.first(1)), ErrorKind::kUsage,
             "no such tensor to write (found number 2, expected below 2)");
  RequireOk(writer.Write(1, 64, all.first(0)));
  CHECK(WholeFile(folder / "f") == before);
}

TEST_CASE("the same bytes come from any number of threads in any order") {
  const TempFolder folder;
  constexpr uint64_t kChunk = 1000;
  const auto write = [&](const std::string& name, unsigned threads, bool backwards) {
    SafetensorsWriter writer = Value(SafetensorsWriter::Create(
        folder / name,
        Value(PlanSafetensors(
            {Tensor("a", DType::kU8, {100, kChunk}), Tensor("b", DType::kI64, {125 * 57})}, {}))));
    RequireOk(ParallelFor(157, threads, [&](size_t task, unsigned) {
      const size_t i = backwards ? 156 - task : task;
      std::vector<std::byte> bytes(kChunk);
      SplitMix64 random(i);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
      const size_t index = i < 100 ? 0 : 1;
      const std::string wanted = index == 0 ? "a" : "b";
      const auto& tensors = writer.header().tensors;
      const size_t at = tensors[0].name == wanted ? 0 : 1;
      return writer.Write(at, (i < 100 ? i : i - 100) * kChunk, bytes);
    }));
    RequireOk(writer.Sync());
    return WholeFile(folder / name);
  };
  const std::string one = write("1", 1, false);
  CHECK(one.size() == 4096 + 157'000);
  CHECK(one == write("2", 2, true));
  CHECK(one == write("7", 7, false));
}

}  // namespace
}  // namespace prepack::testing
