#include <fstream>

#include "catch.h"
#include "gguf/gguf_bytes.h"
#include "prepack/check/check.h"
#include "prepack/check/parts.h"
#include "prepack/gguf/model.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

using gguf::ValueType;

// A copy of a fixture, to be damaged.
class DamagedGguf {
 public:
  explicit DamagedGguf(std::string_view name = "model.gguf") : path_(folder_ / "m.gguf") {
    std::filesystem::copy_file(Fixture("gguf") / name, path_);
  }

  void Write(std::string_view tensor, uint64_t offset, std::string_view bytes) {
    const gguf::Model model = Value(gguf::Model::Open(path_));
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(model.FindTensor(tensor)->offset + offset));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  TempFolder folder_;
  std::filesystem::path path_;
};

CheckReport CheckGgufFile(const std::filesystem::path& path, bool headers_only = false) {
  Progress progress;
  return Value(Check({.source = path, .baseline = {}, .headers_only = headers_only}, progress));
}

void CheckFinds(const CheckReport& report, std::string_view id, std::string_view where,
                std::string_view message) {
  REQUIRE(report.findings.size() == 1);
  const Finding& finding = report.findings[0];
  INFO(finding.where << ": " << finding.message);
  CHECK(finding.id == id);
  CHECK(finding.where == where);
  CHECK(finding.message.find(message) != std::string::npos);
}

TEST_CASE("a sound GGUF model is sound, whole or split") {
  for (const auto* name : {"model.gguf", "split-00002-of-00003.gguf"}) {
    const CheckReport report = CheckGgufFile(Fixture("gguf") / name);
    CHECK(report.verdict == CheckVerdict::kSound);
    CHECK(report.format == "gguf");
    CHECK(report.tensors == 20);
    CHECK(report.findings.empty());
  }
}

TEST_CASE("NaN in blocks and floats of a GGUF model is found") {
  DamagedGguf file;
  SECTION("a scale of f16") {
    file.Write("blk.1.ffn_up.weight", 18 * 3, {"\x00\xFC", 2});
    const CheckReport report = CheckGgufFile(file.path());
    CHECK(report.verdict == CheckVerdict::kBadValues);
    CheckFinds(report, "scale-not-finite", "m.gguf: tensor blk.1.ffn_up.weight",
               "1 scales of Q4_0 are NaN or infinite, the first in the block at byte 54");
    CHECK(CheckGgufFile(file.path(), true).verdict == CheckVerdict::kSound);
  }
  SECTION("a norm of F32") {
    file.Write("output_norm.weight", 8, {"\x00\x00\xC0\x7F", 4});
    CheckFinds(CheckGgufFile(file.path()), "value-not-finite", "m.gguf: tensor output_norm.weight",
               "1 of 64 values are NaN or infinite, the first at byte 8");
  }
}

TEST_CASE("NaN in the scales of MXFP4 and NVFP4 is found") {
  DamagedGguf file("blocks.gguf");
  file.Write("MXFP4.bits", 17, "\xFF");
  file.Write("NVFP4.bits", 36 + 3, "\xFF");
  std::vector<std::string> wheres;
  for (const Finding& finding : CheckGgufFile(file.path()).findings) {
    if (finding.id == "scale-not-finite") wheres.push_back(finding.where);
  }
  CHECK(wheres ==
        std::vector<std::string>{"m.gguf: tensor MXFP4.bits", "m.gguf: tensor NVFP4.bits"});
}

TEST_CASE("a flipped bit in a scale of a GGUF model is found") {
  DamagedGguf file;
  file.Write("blk.0.attn_q.weight", 0, {"\x00\x50", 2});  // 32 among scales of 0.02
  CheckFinds(CheckGgufFile(file.path()), "block-scale-large", "m.gguf: tensor blk.0.attn_q.weight",
             "1 of 128 scales are about 4096 times the median");
}

TEST_CASE("pages of a GGUF model that were never written are found") {
  const auto check = [](size_t empty) {
    std::string data;
    for (size_t i = 0; i < 512; ++i) data += "\x01\x20" + std::string(16, '\x77');
    data.replace(180, empty, std::string(empty, '\0'));
    const TempFolder folder;
    RequireOk(WriteTextFile(folder / "m.gguf",
                            GgufBytes{.entries = {TextEntry("general.architecture", "x")},
                                      .tensors = {TensorEntry("a", {512, 32}, 2, 0)},
                                      .data = data}
                                .Text()));
    return CheckGgufFile(folder / "m.gguf");
  };
  CHECK(check(227 * 18).findings.empty());
  CheckFinds(check(228 * 18), "blocks-empty", "m.gguf: tensor a",
             "4104 bytes of zero from byte 180 of the tensor on");
}

TEST_CASE("tensors of a GGUF model are held against its metadata") {
  const std::vector<std::string> entries = {
      TextEntry("general.architecture", "x"), UintEntry("x.block_count", 1),
      UintEntry("x.embedding_length", 8), UintEntry("x.feed_forward_length", 16),
      UintEntry("x.vocab_size", 2)};
  const auto check = [](std::vector<std::string> kept, const std::string& name,
                        const std::vector<uint64_t>& dims) {
    const TempFolder folder;
    RequireOk(WriteTextFile(folder / "m.gguf", GgufBytes{.entries = std::move(kept),
                                                         .tensors = {TensorEntry(name, dims, 0, 0)},
                                                         .data = std::string(4096, 'x')}
                                                   .Text()));
    CheckReport report = CheckGgufFile(folder / "m.gguf", true);
    std::erase_if(report.findings,
                  [](const Finding& finding) { return finding.id == "file-unused-bytes"; });
    return report;
  };
  CHECK(check(entries, "blk.0.attn_norm.weight", {8}).findings.empty());
  CHECK(check(entries, "blk.0.attn_norm.weight", {8}).verdict == CheckVerdict::kWarnings);
  CheckFinds(check({}, "a", {8}), "metadata-missing", "general.architecture", "does not name");
  CheckFinds(check({entries[0]}, "blk.0.a", {8}), "metadata-missing", "x.block_count",
             "1 layers have tensors");
  CheckFinds(check({entries[0]}, "token_embd.weight", {8, 2}), "metadata-missing",
             "x.embedding_length", "no integer says how wide");
  std::vector<std::string> more = entries;
  more[1] = UintEntry("x.block_count", 3);
  CheckFinds(check(more, "blk.0.a", {8}), "metadata-layers", "blk.1",
             "x.block_count is 3, but 2 of these layers have no tensors");
  const CheckReport beyond = check(entries, "blk.7.a", {8});
  REQUIRE(beyond.findings.size() == 2);
  CHECK(beyond.findings[0].where == "blk.7");
  CHECK(beyond.findings[0].message == "the layer has tensors, but x.block_count is 1");
  CHECK(beyond.verdict == CheckVerdict::kMalformed);
  CheckFinds(check(entries, "blk.0.attn_norm.weight", {9}), "metadata-shape",
             "blk.0.attn_norm.weight", "dimension 0 is 9, but x.embedding_length is 8");
  CheckFinds(check(entries, "blk.0.ffn_down.weight", {8, 8}), "metadata-shape",
             "blk.0.ffn_down.weight", "dimension 0 is 8, but x.feed_forward_length is 16");
  CheckFinds(check({entries[0], entries[2], entries[4]}, "token_embd.weight", {8, 3}),
             "metadata-shape", "token_embd.weight", "dimension 1 is 3, but x.vocab_size is 2");
  const std::string tokens =
      ArrayEntry("tokenizer.ggml.tokens", ValueType::kString, 1, LongText("t"));
  CheckFinds(check({entries[0], entries[2], tokens}, "token_embd.weight", {8, 3}), "metadata-shape",
             "token_embd.weight", "but the number of tokens is 1");
  CheckFinds(check({entries[0], entries[2]}, "output_norm.weight", {4}), "metadata-shape",
             "output_norm.weight", "dimension 0 is 4");
}

TEST_CASE("bytes behind the last tensor of a GGUF model are a warning") {
  const DamagedGguf file;
  std::ofstream(file.path(), std::ios::app | std::ios::binary) << "appended";
  CheckFinds(CheckGgufFile(file.path()), "file-unused-bytes", "m.gguf",
             "8 bytes behind the last tensor");
}

TEST_CASE("a GGUF file that cannot be read is a finding") {
  const DamagedGguf file;
  std::filesystem::resize_file(file.path(), 30'000);
  const CheckReport cut = CheckGgufFile(file.path());
  CHECK(cut.verdict == CheckVerdict::kMalformed);
  CHECK(cut.format.empty());
  REQUIRE(cut.findings.size() == 1);
  CHECK(cut.findings[0].message.find("the file ends before the tensor does") != std::string::npos);
}

TEST_CASE("what a check of a GGUF model cannot do is said") {
  Progress progress;
  const std::filesystem::path path = Fixture("gguf/model.gguf");
  CheckError(Check({.source = path, .baseline = Fixture("float-bf16")}, progress).status(),
             ErrorKind::kUsage, "--baseline: a GGUF model cannot be compared with a baseline");
  CheckError(
      CheckPart({.source = path, .baseline = {}}, {.index = 1, .count = 2}, progress).status(),
      ErrorKind::kUsage, "--part: a check of a GGUF model has no parts");
  CheckError(Check({.source = "no/such.gguf", .baseline = {}}, progress).status(),
             ErrorKind::kSystem, "such.gguf");
  RequestCancellation();
  const Status stopped = Check({.source = path, .baseline = {}}, progress).status();
  ResetCancellation();
  CHECK(stopped.kind() == ErrorKind::kInterrupted);
}

}  // namespace
}  // namespace prepack::testing
