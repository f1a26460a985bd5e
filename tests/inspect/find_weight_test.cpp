// A pair of checkpoints in which one weight or one scale differs is packed, and the bits that
// differ are those that are named for it.

#include "prepack/inspect/places.h"

#include <algorithm>

#include "inspect/flipped_bits.h"
#include "prepack/base/checked.h"
#include "prepack/base/random.h"
#include "temp_folder.h"
#include "verify/folder_damage.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

constexpr std::string_view kModule = "model.layers.0.mlp.down_proj";

std::vector<std::byte> TensorBytesOf(const OpenedFolder& folder, const StoredTensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  RequireOk(folder.checkpoint->Read(tensor, 0, bytes));
  return bytes;
}

// Bytes of a tensor that differ between two packed folders, counted from the start of their file.
std::vector<uint64_t> DifferingBytes(const OpenedFolder& a, const OpenedFolder& b,
                                     const std::string& name) {
  const StoredTensor& tensor = *a.checkpoint->Find(name);
  const std::vector<std::byte> ours = TensorBytesOf(a, tensor);
  const std::vector<std::byte> theirs = TensorBytesOf(b, *b.checkpoint->Find(name));
  std::vector<uint64_t> differing;
  for (uint64_t i = 0; i < ours.size(); ++i) {
    if (ours[i] != theirs[i]) differing.push_back(tensor.offset + i);
  }
  return differing;
}

bool Covers(const BitsInFile& bits, uint64_t offset) {
  return bits.offset <= offset && offset < bits.offset + CeilDiv(bits.bit + bits.bits, 8);
}

const NumberInFile& Number(const FoundWeight& found, std::string_view what) {
  const auto it = std::ranges::find(found.numbers, what, &NumberInFile::what);
  REQUIRE(it != found.numbers.end());
  return *it;
}

bool HoldsWeight(const ByteContents& contents, uint64_t n, uint64_t k) {
  return std::ranges::any_of(
      contents.numbers, [&](const HeldNumber& number) { return number.n == n && number.k == k; });
}

// Packs the checkpoint with the lowest bit of a number changed, and gives it to `check` with what
// was packed before.
template <typename Check>
void WithFlipped(const TempFolder& temp, const PackedExample& example, const NumberInFile& number,
                 Check check) {
  const OpenedFolder before = Value(OpenedFolder::Open(temp / "packed"));
  const BitsInFile& low = number.where.front();
  {
    const Checkpoint source = Value(Checkpoint::Open(temp / "source"));
    const FlippedBit flip(source, low.tensor, low.in_tensor * 8 + low.bit);
    Pack(temp / "source", example, temp / "changed");
  }
  check(before, Value(OpenedFolder::Open(temp / "changed")));
  std::filesystem::remove_all(temp / "changed");
}

void CheckPackedCode(const OpenedFolder& before, const OpenedFolder& after,
                     const FoundWeight& found, uint64_t k) {
  const NumberInFile& code = Number(found, "code");
  REQUIRE(code.where.size() == 1);
  const BitsInFile& bits = code.where.front();
  const std::vector<uint64_t> differing = DifferingBytes(before, after, bits.tensor);
  CHECK(std::ranges::any_of(differing, [&](uint64_t at) { return Covers(bits, at); }));
  for (const uint64_t at : differing) {
    const ByteContents contents = Value(ReadByteContents(before, bits.file, at));
    CAPTURE(at, contents.holds);
    if (Covers(bits, at)) {
      CHECK(contents.holds == "code");
      CHECK(HoldsWeight(contents, found.n, k));
    } else {
      CHECK(contents.holds == "sum of codes");
      REQUIRE(contents.numbers.size() == 1);
      CHECK(contents.numbers.front().n == found.n);
    }
  }
  const FoundWeight changed = Value(FindWeight(after, found.module, found.n, k));
  const uint64_t mask = ((uint64_t{1} << bits.bits) - 1);
  CHECK((code.stored & ~mask) == 0);
  CHECK(Number(changed, "code").stored != code.stored);
  CHECK(changed.weight != found.weight);
}

// Returns how many bytes differ: none where the change is lost in rounding.
size_t CheckPackedScale(const OpenedFolder& before, const OpenedFolder& after,
                        const FoundWeight& found) {
  const BitsInFile& bits = Number(found, "scale").where.front();
  const std::vector<uint64_t> differing = DifferingBytes(before, after, bits.tensor);
  for (const uint64_t at : differing) {
    const ByteContents contents = Value(ReadByteContents(before, bits.file, at));
    CAPTURE(at, contents.holds);
    CHECK(contents.holds == "scale");
    REQUIRE(contents.numbers.size() == 1);
    const HeldNumber& held = contents.numbers.front();
    CHECK(held.g == found.group);
    const bool is_its = held.n <= found.n && found.n < held.n + held.rows;
    CHECK((is_its || !Covers(bits, at)));
  }
  return differing.size();
}

// Returns how many bytes of scales differed.
size_t CheckPair(const char* fixture, const PackedExample& example, SplitMix64& random) {
  const TempFolder temp;
  CopyFolder(Fixture("checkpoints") / fixture, temp / "source");
  Pack(temp / "source", example, temp / "packed");
  const OpenedFolder source = Value(OpenedFolder::Open(temp / "source"));
  const OpenedFolder packed = Value(OpenedFolder::Open(temp / "packed"));
  const QuantizedLinear& linear = *Value(FindSourceModule(source, kModule));
  const uint64_t n = random.Below(linear.n());
  const uint64_t k = random.Below(linear.k());
  CAPTURE(fixture, example.target, n, k);
  const FoundWeight stored = Value(FindWeight(source, kModule, n, k));
  const FoundWeight found = Value(FindWeight(packed, kModule, n, k));
  CAPTURE(found.form);
  CHECK(found.n == n);
  WithFlipped(temp, example, Number(stored, "code"), [&](const auto& before, const auto& after) {
    CheckPackedCode(before, after, found, k);
  });
  if (std::ranges::find(found.numbers, "scale", &NumberInFile::what) == found.numbers.end())
    return 0;
  size_t scale_bytes = 0;
  CHECK(found.weight == Approx(stored.weight).epsilon(0.01));
  WithFlipped(temp, example, Number(stored, "scale"), [&](const auto& before, const auto& after) {
    scale_bytes = CheckPackedScale(before, after, found);
  });
  return scale_bytes;
}

TEST_CASE("a weight is found where packing puts it, for every layout") {
  SplitMix64 random(41);
  size_t scale_bytes = 0;
  for (const char* fixture :
       {"ct-w4a16-g32-asym", "ct-w4a8", "ct-w8a8-asym-act", "ct-w8a8-dynamic", "ct-fp8-block",
        "ct-fp8-dynamic", "gptqmodel-w4-actorder-g128", "awq-gemm-g128", "ct-w8a16-g128-sym"}) {
    for (const char* target : {"vllm-cpu", "zentorch", "onednn"}) {
      scale_bytes += CheckPair(fixture, {.target = target}, random);
    }
  }
  CHECK(scale_bytes > 10);
}

TEST_CASE("a weight of a module that was fused is found under its own name") {
  const TempFolder temp;
  Pack(Fixture("checkpoints/ct-w4a16-g32-asym"), {.target = "vllm-cpu", .fuse = true},
       temp / "packed");
  const OpenedFolder packed = Value(OpenedFolder::Open(temp / "packed"));
  const OpenedFolder source = Value(OpenedFolder::Open(Fixture("checkpoints/ct-w4a16-g32-asym")));
  const std::string up = "model.layers.0.mlp.up_proj";
  const FoundWeight stored = Value(FindWeight(source, up, 3, 70));
  const FoundWeight found = Value(FindWeight(packed, up, 3, 70));
  CHECK(found.module == "model.layers.0.mlp.gate_up_proj");
  CHECK(found.n == Value(FindSourceModule(source, "model.layers.0.mlp.gate_proj"))->n() + 3);
  CHECK(Number(found, "code").stored == Number(stored, "code").stored);
  CHECK(found.group == stored.group);
}

TEST_CASE("weights of a damaged folder are an error that leads to verify") {
  const TempFolder temp;
  Pack(Fixture("checkpoints/ct-w4a16-g32-asym"), {.target = "vllm-cpu"}, temp / "packed");
  EditManifest(temp / "packed", [](Manifest& manifest) {
    auto module = manifest.modules.extract(std::string(kModule));
    module.key() = "renamed";
    for (auto& [name, part] : module.mapped().parts) part.tensor = "renamed." + name;
    manifest.modules.insert(std::move(module));
  });
  CheckError(FindWeight(Value(OpenedFolder::Open(temp / "packed")), "renamed", 0, 0).status(),
             ErrorKind::kMalformed,
             "renamed: the files do not contain part weight. Run `prepack verify`");

  Pack(Fixture("checkpoints/gptqmodel-w4-actorder-g128"), {.target = "vllm-cpu"}, temp / "ordered");
  FlipBits(temp / "ordered", PartOf(temp / "ordered", std::string(kModule), "input_order"), 0, 1);
  CheckError(FindWeight(Value(OpenedFolder::Open(temp / "ordered")), kModule, 0, 0).status(),
             ErrorKind::kMalformed, "input_order: not a permutation of the input channels");
}

TEST_CASE("what is not there is not found, and the nearest name is said") {
  const OpenedFolder source = Value(OpenedFolder::Open(Fixture("checkpoints/ct-w4a16-g32-asym")));
  CheckError(FindWeight(source, "model.layers.0.mlp.down_prj", 0, 0).status(), ErrorKind::kUsage,
             "Did you mean model.layers.0.mlp.down_proj?");
  CheckError(FindWeight(source, kModule, 1'000'000, 0).status(), ErrorKind::kUsage,
             "output channel 0 to");
  CheckError(FindWeight(source, kModule, 0, 1'000'000).status(), ErrorKind::kUsage,
             "no such weight");
}

}  // namespace
}  // namespace prepack::testing
