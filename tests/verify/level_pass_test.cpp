// How verify goes over a folder: in which order, with how many threads for a module, and what is
// left out after a failure.

#include "prepack/verify/level_pass.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "prepack/io/file.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/checked_level.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = uint64_t{1} << 20;

ModuleNeed NeedOf(uint64_t shared, uint64_t per_thread) {
  return {.compared = {}, .multiplied = {.shared = shared, .per_thread = per_thread}};
}

PassResources ResourcesOf(unsigned threads, uint64_t memory) {
  return {.threads = threads, .memory = memory};
}

// Notes what a pass looks at.
class ItemList : public ProgressObserver {
 public:
  void StageBegins(const char* /*stage*/) override {}
  void ItemBegins(std::string_view item) override { items.emplace_back(item); }

  std::vector<std::string> items;
};

TEST_CASE("modules that fit into the memory run side by side, one thread each") {
  const ModuleShare share = ShareOf(NeedOf(kMiB, kMiB), ResourcesOf(8, 64 * kMiB), 100);
  CHECK(share.threads == 1);
  CHECK(share.memory == 2 * kMiB);
}

TEST_CASE("the larger modules are, the fewer run side by side, with more threads each") {
  const PassResources resources = ResourcesOf(8, 64 * kMiB);
  const ModuleShare half = ShareOf(NeedOf(12 * kMiB, 2 * kMiB), resources, 100);
  CHECK(half.threads == 2);  // 4 of them, of 16 MiB each
  CHECK(half.memory == 16 * kMiB);
  const ModuleShare all = ShareOf(NeedOf(200 * kMiB, kMiB), resources, 100);
  CHECK(all.threads == 8);
  CHECK(all.memory == 208 * kMiB);
}

TEST_CASE("levels need memory one after the other") {
  const ModuleNeed need{.compared = {.shared = 0, .per_thread = 9 * kMiB},
                        .multiplied = {.shared = 10 * kMiB, .per_thread = 2 * kMiB}};
  CHECK(need.Of(1) == 12 * kMiB);
  CHECK(need.Of(2) == 18 * kMiB);
}

TEST_CASE("a large module has one thread where others fit beside it") {
  PassResources resources = ResourcesOf(2, 52 * kMiB);
  const ModuleNeed large = NeedOf(14 * kMiB, 20 * kMiB);
  CHECK(ShareOf(large, resources, 100).threads == 2);  // such modules are all that there are
  resources.mean_need = 18 * kMiB;
  CHECK(ShareOf(large, resources, 100).threads == 1);
  resources.mean_need = 18 * kMiB + 1;
  CHECK(ShareOf(large, resources, 100).threads == 2);
  resources.mean_need = 0;
  CHECK(ShareOf(NeedOf(14 * kMiB, 39 * kMiB), resources, 100).threads == 2);  // more than all
}

TEST_CASE("a few modules share all threads") {
  const ModuleNeed small = NeedOf(kMiB, kMiB);
  CHECK(ShareOf(small, ResourcesOf(8, 64 * kMiB), 1).threads == 8);
  CHECK(ShareOf(small, ResourcesOf(8, 64 * kMiB), 3).threads == 3);
  CHECK(ShareOf(small, ResourcesOf(8, 64 * kMiB), 0).threads == 8);
}

// Small modules that came one after the other used to keep a large one out to the end.
TEST_CASE("what fits waits behind what came before and does not fit") {
  MemoryGate gate(10);
  gate.Enter(5);
  std::vector<std::string> entered;
  std::atomic<bool> small_is_in = false;
  std::thread large([&] {
    gate.Enter(10);
    entered.emplace_back("large");
    gate.Leave(10);
  });
  while (gate.waiting() < 1) std::this_thread::yield();
  std::thread small([&] {
    gate.Enter(1);
    small_is_in = true;
    entered.emplace_back("small");
    gate.Leave(1);
  });
  while (gate.waiting() < 2 && !small_is_in) std::this_thread::yield();
  CHECK_FALSE(small_is_in);
  gate.Leave(5);
  large.join();
  small.join();
  CHECK(entered == std::vector<std::string>{"large", "small"});
}

TEST_CASE("a pass looks at everything in the order of the folder, once") {
  TempFolder temp;
  Pack(Fixture("checkpoints/ct-w4a16-g32-asym"), {.target = "vllm-cpu"}, temp / "out");
  const PackedFolder folder = Value(PackedFolder::Open(temp / "out"));
  using Place = std::pair<uint64_t, std::string>;
  std::vector<Place> places;
  for (const auto& [name, record] : folder.manifest().modules) {
    uint64_t first = UINT64_MAX;
    for (const auto& [part, tensor] : record.parts) first = std::min(first, tensor.offset);
    places.emplace_back(first, name);
  }
  for (const TensorRecord& tensor : folder.manifest().tensors) {
    places.emplace_back(tensor.offset, tensor.tensor);
  }
  std::ranges::sort(places);
  REQUIRE(places.size() == 11);

  ItemList list;
  Progress progress(&list);
  const std::vector<ModuleNeed> needs(folder.manifest().modules.size());
  LevelPass pass(folder, nullptr, {}, {.threads = 1, .needs = needs}, progress);
  RequireOk(pass.RunRest());
  std::vector<std::string> expected;
  for (const auto& [offset, name] : places) expected.push_back(name);
  CHECK(list.items == expected);
}

TEST_CASE("what the pass has hashed is not read again") {
  TempFolder temp;
  Pack(Fixture("checkpoints/ct-w4a16-g32-asym"), {.target = "vllm-cpu"}, temp / "out");
  const PackedFolder folder = Value(PackedFolder::Open(temp / "out"));
  Progress progress;
  IntegrityCheck check(folder, nullptr, progress);
  RunOnTwoThreads(folder, nullptr, {.integrity = &check}, progress);
  // The files are damaged behind its back.
  const fs::path shard = temp / "out" / "model.safetensors";
  File file = Value(File::OpenForUpdate(shard));
  const TensorRecord& tensor = folder.manifest().tensors.front();
  const std::byte other{0x5A};
  RequireOk(file.WriteAt(tensor.offset, std::span(&other, 1)));
  ModuleFigures figures;
  for (const auto& [name, record] : folder.manifest().modules) figures[name];
  CHECK(Value(check.Finish(2, figures)).state == LevelState::kPassed);
  CHECK(progress.done() == check.bytes());
  IntegrityCheck again(folder, nullptr, progress);
  CHECK(Value(again.Finish(2, figures)).state == LevelState::kFailed);
}

TEST_CASE("only so many bytes wait for their products, each module once") {
  PostponedModules postponed;
  CHECK_FALSE(postponed.Take());
  CHECK(postponed.Add(7, PostponedModules::kMostBytes - 1));
  CHECK_FALSE(postponed.Add(8, 2));
  CHECK(postponed.Add(3, 1));
  CHECK(postponed.count() == 2);
  CHECK(postponed.Take() == 7);
  CHECK(postponed.Take() == 3);
  CHECK_FALSE(postponed.Take());
  CHECK_FALSE(postponed.Add(9, 1));  // what has been taken counts: it may be long ago
}

// The engine is ready after so many questions, or only when somebody waits for it.
TEST_CASE("products wait for the engine, and all of them are made") {
  TempFolder temp;
  const fs::path source_folder = Fixture("checkpoints/ct-w4a16-g128-sym");
  Pack(source_folder, {.target = "vllm-cpu"}, temp / "out");
  const PackedFolder folder = Value(PackedFolder::Open(temp / "out"));
  const Checkpoint source = Value(Checkpoint::Open(source_folder));
  const SecondDecoder decoder = Value(SecondDecoder::Make(source, "compressed-tensors"));
  const size_t modules = folder.manifest().modules.size();
  for (const size_t questions : {size_t{0}, size_t{3}, SIZE_MAX}) {
    CAPTURE(questions);
    std::atomic<size_t> asked = 0;
    std::atomic<size_t> begun = 0;
    GemmOptions options;
    options.is_ready = [&] { return asked++ >= questions; };
    options.begin = [&] {
      ++begun;
      return Status();
    };
    const SqnrBars bars;
    Progress progress;
    GemmCheck gemm(folder, decoder, options, bars, progress);
    const PassFailures failures = RunOnTwoThreads(folder, nullptr, {.gemm = &gemm}, progress);
    CHECK(failures.gemm.ok());
    CHECK(begun == 1);
    CHECK(progress.done() == gemm.weights());
    ModuleFigures figures;
    for (const auto& [name, record] : folder.manifest().modules) figures[name];
    CHECK(gemm.Finish(figures).gemm.state == LevelState::kPassed);
    const auto multiplied = std::ranges::count_if(
        figures, [](const auto& figure) { return figure.second.gemm.has_value(); });
    CHECK(static_cast<size_t>(multiplied) == modules);
  }
}

// A scale that is no number: the readers refuse the module.
void DamageScale(const fs::path& folder) {
  fs::path shard;
  uint64_t offset = 0;
  {
    const Checkpoint source = Value(Checkpoint::Open(folder));
    const StoredTensor& tensor = *source.Find(kQProj + ".weight_scale");
    REQUIRE(tensor.dtype == DType::kBF16);
    shard = folder / source.files()[tensor.file].name;
    offset = tensor.offset;
  }
  File file = Value(File::OpenForUpdate(shard));
  const std::array nan = {std::byte{0xFF}, std::byte{0x7F}};
  RequireOk(file.WriteAt(offset, nan));
}

TEST_CASE("a module that cannot be read ends exactness, and products, but not integrity") {
  TempFolder temp;
  fs::copy(Fixture("checkpoints/ct-w4a16-g128-sym"), temp / "source");
  Pack(temp / "source", {.target = "vllm-cpu"}, temp / "out");
  DamageScale(temp / "source");
  const PackedFolder folder = Value(PackedFolder::Open(temp / "out"));
  const Checkpoint source = Value(Checkpoint::Open(temp / "source"));
  const QuantizedModel model = Value(ReadQuantizedModel(source));
  const SecondDecoder decoder = Value(SecondDecoder::Make(source, "compressed-tensors"));
  const GemmOptions options;
  const SqnrBars bars;
  Progress progress;
  IntegrityCheck integrity(folder, nullptr, progress);
  ExactnessCheck exactness(folder, source, model, nullptr, progress);
  GemmCheck gemm(folder, decoder, options, bars, progress);
  RequireOk(exactness.CompareRecords());
  CHECK(exactness.SourceHoldsModules());
  const PassFailures failures = RunOnTwoThreads(
      folder, nullptr, {.integrity = &integrity, .exactness = &exactness, .gemm = &gemm}, progress);
  CheckError(failures.exactness, ErrorKind::kMalformed,
             "the scale of channel 0, group 0 is not a finite number");
  CHECK(failures.gemm.ok());

  ModuleFigures figures;
  for (const auto& [name, record] : folder.manifest().modules) figures[name];
  CHECK(Value(integrity.Finish(1, figures)).state == LevelState::kPassed);
  gemm.Finish(figures);
  CHECK_FALSE(figures.at(kQProj).gemm.has_value());
}

}  // namespace
}  // namespace prepack::testing
