// The products of packed modules: who multiplies, and what the figures say.

#include "prepack/verify/module_products.h"

#include <atomic>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch.h"
#include "prepack/convert/output_shards.h"
#include "prepack/gemm/engine.h"
#include "prepack/io/file.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

// One module of a folder that is packed for the test.
struct ModuleExample {
  TempFolder temp;
  std::filesystem::path source;

  ModuleExample(const char* checkpoint, const PackedExample& example)
      : source(Fixture(std::string("checkpoints/") + checkpoint)) {
    Pack(source, example, temp / "out");
  }

  Result<ModuleProducts> Multiply(const ProductOptions& options) const {
    const PackedFolder folder = Value(PackedFolder::Open(temp / "out"));
    const PackedModule packed =
        Value(PackedModule::Open(folder, kQProj, folder.manifest().modules.at(kQProj)));
    const Checkpoint checkpoint = Value(Checkpoint::Open(source));
    const SecondDecoder decoder =
        Value(SecondDecoder::Make(checkpoint, folder.manifest().source_format));
    Progress progress;
    return MultiplyModule(packed, decoder, options, progress);
  }
};

TEST_CASE("every kind of activations makes its figures") {
  const ModuleExample example("ct-w4a16-g128-sym", {.target = "vllm-cpu"});
  const ModuleProducts products = Value(example.Multiply({}));
  const std::vector<InputFigures>& inputs = products.gemm.inputs;
  REQUIRE(inputs.size() == 5);
  const std::vector<std::pair<std::string, uint64_t>> expected = {
      {"gaussian", 1}, {"gaussian", 8}, {"gaussian", 64}, {"outliers", 8}, {"one-hot", 16}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    CHECK(inputs[i].input == expected[i].first);
    CHECK(inputs[i].rows == expected[i].second);
    CHECK(inputs[i].kernel.sqnr_db >= 53);
    CHECK(inputs[i].kernel.worst_channel < 384);
    CHECK(inputs[i].kernel.cosine > 0.99999);
  }
  // One weight of 16 bits is not rounded once more.
  CHECK(std::isinf(inputs[4].kernel.sqnr_db));
  CHECK_FALSE(products.gemm.agreement_db);
  CHECK_FALSE(products.quality);
}

TEST_CASE("without a sample, all channels meet the one-hot rows alone") {
  const ModuleExample example("ct-w4a16-g128-sym", {.target = "vllm-cpu"});
  ProductOptions options{.sampled_weights = 1, .channels_only = true};
  const ModuleProducts products = Value(example.Multiply(options));
  CHECK(products.weights.none());
  CHECK(products.gemm.channels == 0);
  REQUIRE(products.gemm.inputs.size() == 1);
  CHECK(products.gemm.inputs[0].input == "one-hot");
  CHECK(products.gemm.inputs[0].rows == 16);
  CHECK(std::isinf(products.gemm.inputs[0].kernel.sqnr_db));
  // Unless all channels are to meet all rows.
  options.sampled_weights = UINT64_MAX;
  CHECK(Value(example.Multiply(options)).gemm.inputs.size() == 5);
}

// The sample is some of 384 output channels; where they lie, the name of the module says.
TEST_CASE("oneDNN's primitive multiplies copies of the sample as it does the whole module") {
  const Result<std::unique_ptr<GemmEngine>> engine = MakeOneDnnEngine();
  if (!engine.ok()) {
    WARN("not run: " << engine.status().ToString());
    return;
  }
  for (const char* checkpoint : {"ct-w4a16-g128-sym", "ct-w4a16-g32-asym", "ct-w8a8-dynamic",
                                 "ct-w8a8-static", "ct-w8a8-asym-act"}) {
    CAPTURE(checkpoint);
    const ModuleExample example(checkpoint, {.target = "onednn"});
    ProductOptions options{.engine = engine->get(), .sampled_weights = 1};
    const ModuleProducts whole = Value(example.Multiply(options));
    options.whole = false;
    const ModuleProducts sampled = Value(example.Multiply(options));
    CHECK(sampled.gemm.implementation == whole.gemm.implementation);
    // Of weights in blocks of 64 channels, too.
    CHECK(sampled.gemm.channels == 16);
    CHECK(whole.gemm.channels == 16);
    CHECK(sampled.weights.none());
    REQUIRE(sampled.gemm.inputs.size() == 5);
    for (size_t i = 0; i < 5; ++i) {
      const InputFigures& found = sampled.gemm.inputs[i];
      CAPTURE(found.input, found.rows);
      CHECK(found.kernel.sqnr_db >= 48);
      CHECK(found.kernel.worst_channel_sqnr_db >= 48);
      CHECK(found.end_to_end.sqnr_db ==
            Approx(whole.gemm.inputs[i].end_to_end.sqnr_db).margin(0.1));
    }
  }
}

// The models point into the mapped weight from one panel to the next.
TEST_CASE("a module is multiplied right while others use up the windows of files") {
  const TempFolder temp;
  const uint64_t windows = 4 * MostKeptWindows();
  File file = Value(File::CreateNew(temp / "sparse"));
  RequireOk(file.Resize(windows * kWindowBytes));
  std::atomic<bool> done = false;
  std::thread others([&] {
    for (uint64_t i = 0; !done; ++i) {
      (void)file.VisitAt(i % windows * kWindowBytes, 1, [](const std::byte*) {});
    }
  });
  for (const char* target : {"vllm-cpu", "zentorch"}) {
    const ModuleExample example("ct-w8a8-dynamic", {.target = target});
    const Result<ModuleProducts> products = example.Multiply({.sampled_weights = 1});
    CHECK(products.ok());
    if (!products.ok()) continue;
    CHECK(products->weights.none());
    for (const InputFigures& figures : products->gemm.inputs) CHECK(figures.kernel.sqnr_db >= 48);
  }
  done = true;
  others.join();
}

TEST_CASE("the figures do not depend on the number of threads") {
  const ModuleExample example("ct-w4a16-g32-asym", {.target = "zentorch"});
  const GemmFigures one = Value(example.Multiply({.threads = 1})).gemm;
  const GemmFigures four = Value(example.Multiply({.threads = 4})).gemm;
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    CHECK(one.inputs[i].kernel.sqnr_db == four.inputs[i].kernel.sqnr_db);
    CHECK(one.inputs[i].end_to_end.cosine == four.inputs[i].end_to_end.cosine);
    CHECK(one.inputs[i].kernel.worst_channel == four.inputs[i].kernel.worst_channel);
  }
}

// Activations of a file, as a user records them.
std::filesystem::path Record(const TempFolder& temp, const std::string& dtype,
                             const std::string& shape, size_t bytes) {
  const std::string header = R"({")" + kQProj + R"(":{"dtype":")" + dtype + R"(","shape":)" +
                             shape + R"(,"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
  std::ofstream file(temp / "x.safetensors", std::ios::binary);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << header;
  for (size_t i = 0; i < bytes / 4; ++i) {
    const float value = static_cast<float>(i % 7) - 3;
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return temp / "x.safetensors";
}

TEST_CASE("recorded activations make figures of their own") {
  const ModuleExample example("ct-w4a16-g128-sym", {.target = "vllm-cpu"});
  const Checkpoint recorded =
      Value(Checkpoint::Open(Record(example.temp, "F32", "[1,5,384]", 7680)));
  const ModuleProducts products = Value(example.Multiply({.recorded = &recorded}));
  REQUIRE(products.gemm.inputs.size() == 6);
  CHECK(products.gemm.inputs[4].input == "recorded");
  CHECK(products.gemm.inputs[4].rows == 5);
  CHECK(products.gemm.inputs[4].kernel.sqnr_db >= 53);
}

TEST_CASE("recorded activations that do not fit are refused") {
  const ModuleExample example("ct-w4a16-g128-sym", {.target = "vllm-cpu"});
  const auto fails = [&](const char* dtype, const char* shape, size_t bytes) {
    const Checkpoint recorded = Value(Checkpoint::Open(Record(example.temp, dtype, shape, bytes)));
    CheckError(example.Multiply({.recorded = &recorded}).status(), ErrorKind::kUsage,
               "the recorded activations do not match the module");
  };
  fails("F32", "[5,383]", 7660);
  fails("I32", "[5,384]", 7680);
  fails("F32", "[0,384]", 0);
}

TEST_CASE("the unquantized model gives weight and output SQNR") {
  const ModuleExample example("ct-w4a16-g128-sym", {.target = "vllm-cpu"});
  const Checkpoint baseline = Value(Checkpoint::Open(Fixture("float-bf16")));
  const ModuleProducts products = Value(example.Multiply({.baseline = &baseline}));
  REQUIRE(products.quality);
  CHECK(std::abs(products.quality->weight_sqnr_db.value_or(0) - 18.5) < 2);
  // Gaussian activations weigh all weights alike.
  CHECK(std::abs(products.quality->output_sqnr_db.value_or(0) -
                 products.quality->weight_sqnr_db.value_or(0)) < 1);
}

TEST_CASE("a module that the unquantized model lacks has no quality, with the reason") {
  const ModuleExample example("ct-w4a16-g128-sym", {.target = "vllm-cpu"});
  const Checkpoint baseline =
      Value(Checkpoint::Open(Fixture("checkpoints/ct-w4a16-g128-sym")));  // has packed ones only
  const ModuleProducts products = Value(example.Multiply({.baseline = &baseline}));
  CHECK_FALSE(products.quality);
  CHECK(products.no_quality.find("the baseline has no weight for this module") !=
        std::string::npos);
}

}  // namespace
}  // namespace prepack::testing
