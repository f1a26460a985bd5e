#include "prepack/gguf/model.h"

#include "catch.h"
#include "gguf/gguf_bytes.h"
#include "prepack/gguf/keys.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

using gguf::Model;
using gguf::ValueType;

TEST_CASE("a GGUF file of the real writer") {
  const Model model = Value(Model::Open(Fixture("gguf/model.gguf")));
  CHECK(model.version() == 3);
  CHECK(model.architecture() == "llama");
  CHECK(model.tensors().size() == 20);
  CHECK(model.ArchitectureUint(gguf::kBlockCount) == 2);
  CHECK_FALSE(model.ArchitectureUint(".no_such_key"));
  REQUIRE(model.FindTensor("blk.1.ffn_down.weight") != nullptr);
  CHECK(model.FindTensor("blk.1.ffn_down.weight")->dims == gguf::Dims{96, 64});
  CHECK(model.FindTensor("blk.2.ffn_down.weight") == nullptr);
  CHECK(model.files()[0].unused_bytes == 0);

  const auto text = [&](std::string_view key) {
    const gguf::Value* value = model.FindValue(key);
    REQUIRE(value != nullptr);
    return gguf::NumberText(value->type, value->bits);
  };
  CHECK(text("test.uint8") == "200");
  CHECK(text("test.int8") == "-5");
  CHECK(text("test.uint16") == "60000");
  CHECK(text("test.int16") == "-300");
  CHECK(text("test.uint32") == "4000000000");
  CHECK(text("test.int32") == "-70000");
  CHECK(text("test.float32") == "0.5");
  CHECK(text("test.bool") == "true");
  CHECK(text("test.uint64") == "9223372036854775808");
  CHECK(text("test.int64") == "-1099511627776");
  CHECK(text("test.float64") == "1e-300");

  CHECK(Value(model.ReadText(*model.FindValue("general.name"), 3)) == "tin");
  const gguf::Value& tokens = *model.FindValue(gguf::kTokens);
  CHECK(tokens.count == 40);
  CHECK(Value(model.ReadTexts(tokens, 2, 100)) == std::vector<std::string>{"t0", "t1"});
  CHECK(Value(model.ReadTexts(tokens, 2, 1)) == std::vector<std::string>{"t", "t"});
  const gguf::Value& types = *model.FindValue("tokenizer.ggml.token_type");
  CHECK(Value(model.ReadNumbers(types, 100)).size() == 40);
}

TEST_CASE("a split GGUF model is one model, whichever file is named") {
  const Model whole = Value(Model::Open(Fixture("gguf/model.gguf")));
  for (const auto* name : {"split-00001-of-00003.gguf", "split-00003-of-00003.gguf"}) {
    const Model split = Value(Model::Open(Fixture("gguf") / name));
    CHECK(split.files().size() == 3);
    CHECK(split.architecture() == "llama");
    REQUIRE(split.tensors().size() == whole.tensors().size());
    for (size_t i = 0; i < whole.tensors().size(); ++i) {
      CHECK(split.tensors()[i].name == whole.tensors()[i].name);
    }
    CHECK(split.total_bytes() == whole.total_bytes());
    CHECK(split.Where(split.tensors()[0]) ==
          "split-00001-of-00003.gguf: tensor blk.0.attn_k.weight");
  }
}

// A file of a split model of two, with one tensor.
std::string SplitFile(uint64_t no, uint64_t count, std::string_view tensor, uint64_t tensors = 2) {
  return GgufBytes{.entries = {UintEntry("split.no", no), UintEntry("split.count", count),
                               UintEntry("split.tensors.count", tensors)},
                   .tensors = {TensorEntry(tensor, {8}, 0, 0)},
                   .data = std::string(32, 'x')}
      .Text();
}

Status OpenSplit(std::string_view first, std::string_view second,
                 std::string_view name = "m-00001-of-00002.gguf") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / name, first));
  if (!second.empty()) RequireOk(WriteTextFile(folder / "m-00002-of-00002.gguf", second));
  return Model::Open(folder / name).status();
}

TEST_CASE("files of a split GGUF model must belong together") {
  const std::string first = SplitFile(0, 2, "a");
  const std::string second = SplitFile(1, 2, "b");
  RequireOk(OpenSplit(first, second));
  CheckError(OpenSplit(first, ""), ErrorKind::kSystem, "m-00002-of-00002.gguf");
  for (const auto* name : {"m.gguf", "m-00001-of-00003.gguf", "m-00000-of-00002.gguf",
                           "m-1-of-2.gguf", "-00001-of-00002.gguf", "m-x0001-of-00002.gguf"}) {
    CheckError(OpenSplit(first, second, name), ErrorKind::kMalformed,
               "does not say which it is (found");
  }
  CheckError(OpenSplit(first, SplitFile(0, 2, "b")), ErrorKind::kMalformed,
             "key split.no: the file does not belong to the others of the split model (found 0, "
             "expected 1)");
  CheckError(OpenSplit(first, SplitFile(1, 3, "b")), ErrorKind::kMalformed,
             "key split.count: the file does not belong to the others");
  CheckError(OpenSplit(first, GgufBytes{}.Text()), ErrorKind::kMalformed,
             "key split.no: the file does not belong to the others of the split model (found "
             "nothing, expected 1)");
  CheckError(OpenSplit(SplitFile(0, 2, "a", 3), second), ErrorKind::kMalformed,
             "key split.tensors.count: the file does not belong to the others of the split model "
             "(found 3, expected 2)");
  CheckError(OpenSplit(first, SplitFile(1, 2, "a")), ErrorKind::kMalformed,
             "tensor a: two files of the split model have this tensor");
  CheckError(OpenSplit(SplitFile(0, 100'000, "a"), ""), ErrorKind::kMalformed,
             "key split.count: not a number of files (found 100000");
  CheckError(OpenSplit(GgufBytes{.entries = {TextEntry("split.count", "2")}}.Text(), ""),
             ErrorKind::kMalformed, "not a number of files (found STRING");
  const std::string of_text =
      GgufBytes{.entries = {TextEntry("split.no", "1"), UintEntry("split.count", 2)}}.Text();
  CheckError(OpenSplit(first, of_text), ErrorKind::kMalformed, "(found STRING, expected 1)");
}

TEST_CASE("the architecture of a GGUF file is a short text") {
  const TempFolder folder;
  const auto open = [&](const std::string& entry) {
    std::filesystem::remove(folder / "m.gguf");
    RequireOk(WriteTextFile(folder / "m.gguf", GgufBytes{.entries = {entry}}.Text()));
    return Model::Open(folder / "m.gguf");
  };
  CHECK(Value(open(UintEntry("a", 1))).architecture().empty());
  CheckError(open(UintEntry("general.architecture", 1)).status(), ErrorKind::kMalformed,
             "not the name of an architecture (found UINT32");
  CheckError(open(TextEntry("general.architecture", std::string(257, 'a'))).status(),
             ErrorKind::kMalformed, "(found 257 bytes, expected a STRING of at most 256 bytes)");
}

TEST_CASE("a GGUF file is known by its name or its first bytes") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "blob", GgufBytes{}.Text()));
  RequireOk(WriteTextFile(folder / "other", "safe"));
  RequireOk(WriteTextFile(folder / "short", "GG"));
  CHECK(gguf::IsGguf(folder / "blob"));
  CHECK(gguf::IsGguf("no/such.gguf"));
  CHECK_FALSE(gguf::IsGguf(folder / "other"));
  CHECK_FALSE(gguf::IsGguf(folder / "short"));
  CHECK_FALSE(gguf::IsGguf(folder.path()));
}

}  // namespace
}  // namespace prepack::testing
