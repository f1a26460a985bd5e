#include "prepack/verify/truth.h"

#include <string>
#include <vector>

#include "formats/tiny_model.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

const std::vector<std::string> kMembers = {"q_proj", "k_proj", "v_proj"};

// qkv_proj, fused of one checkpoint and compared with another.
class FusedOf {
 public:
  explicit FusedOf(const TestCheckpoint& model) {
    model.Write(temp_ / "source");
    Pack(temp_ / "source", {.target = "vllm-cpu", .fuse = true}, temp_ / "packed");
    folder_.emplace(Value(PackedFolder::Open(temp_ / "packed")));
    const auto& [name, record] = *folder_->manifest().modules.begin();
    REQUIRE(record.fused.size() == 3);
    packed_.emplace(Value(PackedModule::Open(*folder_, name, record)));
  }

  const PackedModule& packed() const { return *packed_; }
  // Reads another source, in its place.
  const SecondDecoder& With(const TestCheckpoint& model) {
    model.Write(temp_ / "other");
    source_.emplace(Value(Checkpoint::Open(temp_ / "other")));
    decoder_.emplace(Value(SecondDecoder::Make(*source_, "compressed-tensors")));
    return *decoder_;
  }

 private:
  TempFolder temp_;
  std::optional<PackedFolder> folder_;
  std::optional<PackedModule> packed_;
  std::optional<Checkpoint> source_;
  std::optional<SecondDecoder> decoder_;
};

void AddBias(TestCheckpoint& model, const std::string& module) {
  model.tensors.push_back({module + ".bias", "BF16", {32}, std::vector<std::byte>(64)});
}

TEST_CASE("that only one of several fused modules has a bias is refused") {
  TestCheckpoint model = TinyModel(kMembers);
  FusedOf fused(model);
  std::vector<double> bias;
  RequireOk(ReadSourceBias(fused.With(model), fused.packed(), bias));
  CHECK(bias.empty());
  AddBias(model, "q_proj");
  CheckError(ReadSourceBias(fused.With(model), fused.packed(), bias), ErrorKind::kMalformed,
             "made from differ in whether they have a bias");
  AddBias(model, "k_proj");
  AddBias(model, "v_proj");
  RequireOk(ReadSourceBias(fused.With(model), fused.packed(), bias));
  CHECK(bias == std::vector<double>(96, 0.0));
}

TEST_CASE("that several fused modules quantize their inputs differently is refused") {
  TestCheckpoint model = TinyW8A8Model(kMembers);
  FusedOf fused(model);
  for (const std::string& module : kMembers) {
    model.tensors.push_back({module + ".input_scale", "F32", {1}, Hex("00 00 80 3f")});
  }
  CHECK(Value(ReadSourceInput(fused.With(model), fused.packed())).scale == 1);
  model.At("v_proj.input_scale").bytes = Hex("00 00 00 40");
  CheckError(ReadSourceInput(fused.With(model), fused.packed()).status(), ErrorKind::kMalformed,
             "made from differ in the scale of their inputs");
}

// Two groups of 32 input channels.
TestCheckpoint TwoGroups() {
  TestCheckpoint model = TinyModel(kMembers);
  for (const std::string& module : kMembers) {
    for (const char* part : {".weight_packed", ".weight_scale"}) {
      TestTensor& tensor = model.At(module + part);
      tensor.shape[1] *= 2;
      const std::vector<std::byte> half = tensor.bytes;
      tensor.bytes.insert(tensor.bytes.end(), half.begin(), half.end());
    }
    model.At(module + ".weight_shape").bytes = Int64s({32, 64});
  }
  return model;
}

TEST_CASE("that several fused modules group their inputs differently is refused") {
  TestCheckpoint model = TwoGroups();
  FusedOf fused(model);
  DecodedRows rows;
  RequireOk(DecodeSourceRows(fused.With(model), fused.packed(), 0, 96, rows));
  CHECK(rows.rows() == 96);
  std::vector<std::byte> order;  // groups by turns
  for (int k = 0; k < 64; ++k) {
    for (int byte = 0; byte < 4; ++byte) order.push_back(std::byte(byte == 0 ? k % 2 : 0));
  }
  model.tensors.push_back({"k_proj.weight_g_idx", "I32", {64}, order});
  RequireOk(DecodeSourceRows(fused.With(model), fused.packed(), 0, 32, rows));
  CheckError(DecodeSourceRows(fused.With(model), fused.packed(), 0, 96, rows),
             ErrorKind::kMalformed, "made from differ in the groups of their inputs");
}

}  // namespace
}  // namespace prepack::testing
