#include "prepack/gguf/header.h"

#include "catch.h"
#include "gguf/gguf_bytes.h"
#include "prepack/gguf/keys.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

using gguf::GgmlType;
using gguf::ValueType;

Result<gguf::Header> ReadGguf(std::string_view bytes) {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "m.gguf", bytes));
  const Result<File> file = File::OpenForRead(folder / "m.gguf");
  RequireOk(file.status());
  return gguf::ReadHeader(*file);
}

void CheckRefused(std::string_view bytes, std::string_view text,
                  ErrorKind kind = ErrorKind::kMalformed) {
  CheckError(ReadGguf(bytes).status(), kind, text);
}

// Two tensors, the second behind the padding of the first.
GgufBytes TwoTensors() {
  return {.entries = {TextEntry("general.architecture", "llama"), UintEntry("a", 7)},
          .tensors = {TensorEntry("x", {5}, 0, 0), TensorEntry("y", {32, 2}, 2, 32)},
          .data = std::string(32 + 36, 'x')};
}

TEST_CASE("a GGUF header is read as it stands") {
  const gguf::Header header = Value(ReadGguf(TwoTensors().Text()));
  CHECK(header.version == 3);
  CHECK(header.alignment == 32);
  REQUIRE(header.values.size() == 2);
  CHECK(header.values[0].key == "general.architecture");
  CHECK(header.values[0].count == 5);
  CHECK(header.values[0].bytes == 5);
  CHECK(header.values[1].bits == 7);
  REQUIRE(header.tensors.size() == 2);
  CHECK(header.tensors[0].bytes == 20);
  CHECK(header.tensors[0].offset == header.data_start);
  CHECK(header.tensors[1].type == GgmlType::kQ4_0);
  CHECK(header.tensors[1].dims == gguf::Dims{32, 2});
  CHECK(header.tensors[1].offset == header.data_start + 32);
  CHECK(header.tensors[1].bytes == 36);
  CHECK(header.unused_bytes == 0);
}

TEST_CASE("what other writers of GGUF do is taken") {
  GgufBytes bytes = TwoTensors();
  SECTION("version 2") {
    bytes.version = 2;
    CHECK(Value(ReadGguf(bytes.Text())).version == 2);
  }
  SECTION("padding behind the last tensor is not unused") {
    bytes.data.resize(32 + 64);
    CHECK(Value(ReadGguf(bytes.Text())).unused_bytes == 0);
    bytes.data.resize(32 + 64 + 3);
    CHECK(Value(ReadGguf(bytes.Text())).unused_bytes == 3);
  }
  SECTION("another alignment") {
    bytes.entries.push_back(UintEntry("general.alignment", 64));
    bytes.alignment = 64;
    bytes.tensors[1] = TensorEntry("y", {32, 2}, 2, 64);
    bytes.data.resize(64 + 36);
    const gguf::Header header = Value(ReadGguf(bytes.Text()));
    CHECK(header.alignment == 64);
    CHECK(header.data_start % 64 == 0);
  }
  SECTION("metadata only, without padding") {
    bytes.tensors.clear();
    CHECK(Value(ReadGguf(bytes.Header())).tensors.empty());
  }
  SECTION("a scalar, and a tensor of no weights") {
    bytes.tensors = {TensorEntry("x", {}, 0, 0), TensorEntry("y", {32, 0}, 2, 32)};
    const gguf::Header header = Value(ReadGguf(bytes.Text()));
    CHECK(header.tensors[0].bytes == 4);
    CHECK(header.tensors[1].bytes == 0);
  }
}

TEST_CASE("the start of a GGUF file is checked") {
  const std::string sound = TwoTensors().Text();
  CheckRefused("GG", "the file is not a GGUF file (found a shorter file");
  CheckRefused("version https://git-lfs", "the file is not a GGUF file (found vers");
  CheckRefused(sound.substr(0, 6), "m.gguf: version: the file ends here (found 2 bytes");
  const auto with_version = [&](std::string_view version) {
    return "GGUF" + std::string(version) + sound.substr(8);
  };
  CheckRefused(with_version({"\0\0\0\3", 4}), "the file is big-endian (found version 0x3000000",
               ErrorKind::kUnsupported);
  CheckRefused(with_version({"\1\0\0\0", 4}), "Convert the model again", ErrorKind::kUnsupported);
  CheckRefused(with_version({"\4\0\0\0", 4}), "(found 4, expected 2 or 3)",
               ErrorKind::kUnsupported);
  CheckRefused(with_version({"\0\0\0\0", 4}), "(found 0, expected 2 or 3)",
               ErrorKind::kUnsupported);
}

TEST_CASE("counts and lengths of a GGUF file are compared with its size") {
  const std::string sound = TwoTensors().Text();
  std::string bytes = sound;
  bytes.replace(8, 8, Little(uint64_t{1} << 60, 8));
  CheckRefused(bytes, "number of tensors: the file is too short for so many");
  bytes = sound;
  bytes.replace(16, 8, Little(~uint64_t{0}, 8));
  CheckRefused(bytes, "number of metadata entries: the file is too short for so many");

  const auto with_entry = [](const std::string& entry) {
    return GgufBytes{.entries = {entry}, .data = std::string(64, '\0')}.Text();
  };
  CheckRefused(with_entry(Little(~uint64_t{0}, 8)),
               "metadata entry 0: a text is longer than the file (found 18446744073709551615");
  CheckRefused(with_entry(LongText(std::string(65'536, 'k'))),
               "the key is too long (found 65536 bytes, expected at most 65535)");
  CheckRefused(with_entry(UintEntry("a\nb", 1)), R"(contains a control character (found a\x0ab))");
  CheckRefused(with_entry(LongText("k") + Little(13, 4)), "key k: unknown type of value (found 13");
  CheckRefused(with_entry(Entry("k", ValueType::kString, Little(1 << 20, 8))),
               "key k: a text is longer than the file");
  CheckRefused(with_entry(Entry("k", ValueType::kBool, "\2")),
               "key k: a boolean is neither 0 nor 1 (found 2)");
  CheckRefused(with_entry(ArrayEntry("k", ValueType::kArray, 1, "")), "key k: an array of arrays",
               ErrorKind::kUnsupported);
  CheckRefused(with_entry(ArrayEntry("k", ValueType::kUint64, 1000, "")),
               "key k: the array is longer than the file (found 1000 elements of UINT64");
  CheckRefused(with_entry(ArrayEntry("k", ValueType::kString, 1000, "")),
               "(found 1000 elements of STRING");
  CheckRefused(with_entry(ArrayEntry("k", ValueType::kString, 2, LongText("a") + Little(999, 8))),
               "key k: a text is longer than the file (found 999 bytes");
  CheckRefused(GgufBytes{.entries = {UintEntry("k", 1), UintEntry("k", 2)}}.Text(),
               "key k: the key is there twice");
}

TEST_CASE("the alignment of a GGUF file is a power of two") {
  const auto with_alignment = [](const std::string& entry) {
    return GgufBytes{.entries = {entry}}.Text();
  };
  for (const uint64_t number : {uint64_t{0}, uint64_t{48}, uint64_t{1} << 31}) {
    CheckRefused(with_alignment(UintEntry("general.alignment", number)),
                 "key general.alignment: not a valid alignment");
  }
  CheckRefused(with_alignment(TextEntry("general.alignment", "32")), "(found STRING, expected");
  CheckRefused(with_alignment(Entry("general.alignment", ValueType::kUint64, Little(32, 8))),
               "(found 32 of UINT64, expected");
}

TEST_CASE("tensors of a GGUF file are checked") {
  const auto with_tensors = [](const std::vector<std::string>& tensors) {
    return GgufBytes{.tensors = tensors, .data = std::string(96, 'x')}.Text();
  };
  CheckRefused(with_tensors({TensorEntry(std::string(64, 'n'), {1}, 0, 0)}),
               "tensor 0 of the list: the name is too long (found 64 bytes, expected at most 63)");
  CheckRefused(with_tensors({TensorEntry("a\tb", {1}, 0, 0)}), "the name contains a control");
  CheckRefused(with_tensors({TensorEntry("x", {1, 1, 1, 1, 1}, 0, 0)}),
               "tensor x: shape: too many dimensions (found 5, expected at most 4)");
  for (const uint64_t retired : {4U, 9U, 36U, 1000U}) {
    CheckRefused(with_tensors({TensorEntry("x", {32}, retired, 0)}),
                 "tensor x: type: no type of ggml that prepack knows", ErrorKind::kUnsupported);
  }
  CheckRefused(with_tensors({TensorEntry("x", {33}, 2, 0)}),
               "no multiple of the block (found Q4_0 [33], expected a multiple of 32)");
  CheckRefused(with_tensors({TensorEntry("x", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0)}),
               "tensor x: shape: the size overflows 64 bits");
  CheckRefused(with_tensors({TensorEntry("x", {8}, 0, 0), TensorEntry("x", {8}, 0, 32)}),
               "tensor x: the file has this name twice");
  CheckRefused(with_tensors({TensorEntry("x", {8}, 0, 0), TensorEntry("y", {8}, 0, 0)}),
               "tensor y: offset: overlaps tensor x (found 0, expected 32)");
  CheckRefused(with_tensors({TensorEntry("x", {8}, 0, 0), TensorEntry("y", {8}, 0, 64)}),
               "tensor y: offset: a gap of 32 bytes before it (found 64, expected 32)");
  CheckRefused(with_tensors({TensorEntry("x", {8}, 0, 4)}),
               "tensor x: offset: not a multiple of the alignment 32 (found 4, expected 0)");
  CheckRefused(with_tensors({TensorEntry("x", {25}, 0, 0)}),
               "tensor x: the file ends before the tensor does (found 96 bytes of data, expected "
               "100 bytes from 0 on). Is the download complete?");
}

TEST_CASE("a GGUF file cut anywhere is an error") {
  const std::string sound = TwoTensors().Text();
  for (size_t length = 0; length < sound.size(); ++length) {
    INFO(length);
    CHECK_FALSE(ReadGguf(sound.substr(0, length)).ok());
  }
}

TEST_CASE("numbers of GGUF metadata") {
  using gguf::NumberText;
  CHECK(NumberText(ValueType::kInt8, 0xFB) == "-5");
  CHECK(NumberText(ValueType::kUint64, ~uint64_t{0}) == "18446744073709551615");
  CHECK(NumberText(ValueType::kFloat32, 0x3F000000) == "0.5");
  CHECK(NumberText(ValueType::kFloat64, 0x4000000000000000) == "2");
  CHECK(NumberText(ValueType::kBool, 1) == "true");
  CHECK(gguf::NumberOf(ValueType::kInt16, 0xFFFF) == -1);
  CHECK(gguf::NumberOf(ValueType::kUint16, 0xFFFF) == 65535);
  CHECK(gguf::NumberOf(ValueType::kFloat32, 0x3F000000) == 0.5);
  CHECK(gguf::UintOf({.key = "", .type = ValueType::kInt32, .bits = 7}) == 7);
  CHECK_FALSE(gguf::UintOf({.key = "", .type = ValueType::kInt32, .bits = 0xFFFFFFFF}));
  CHECK_FALSE(gguf::UintOf({.key = "", .type = ValueType::kBool, .bits = 1}));
  CHECK_FALSE(gguf::UintOf({.key = "", .type = ValueType::kFloat32, .bits = 1}));
  CHECK(gguf::SplitName("m", 0, 3) == "m-00001-of-00003.gguf");
}

}  // namespace
}  // namespace prepack::testing
