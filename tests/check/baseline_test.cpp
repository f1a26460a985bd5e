#include "prepack/measure/baseline.h"
#include "catch.h"
#include "check/check_run.h"

namespace prepack::testing {
namespace {

TEST_CASE("the SQNR against the baseline is that of the rounding") {
  TestCheckpoint baseline;
  const TestCheckpoint checkpoint = WideExample(1, &baseline);
  const CheckReport report = RunCheck(checkpoint, &baseline);
  RequireSound(report);
  // The largest of 32 weights is 2.1 deviations on average, so that these are 3.5 steps; rounding
  // has an rms of 1/√12: 21.7 dB, a little less by clamping.
  REQUIRE(report.modules[0].sqnr_db.has_value());
  CHECK(*report.modules[0].sqnr_db > 20);
  CHECK(*report.modules[0].sqnr_db < 22.5);
}

TEST_CASE("a module that falls behind its peers is an outlier") {
  TestCheckpoint baseline;
  const TestCheckpoint checkpoint = WideExample(6, &baseline);
  RequireSound(RunCheck(checkpoint, &baseline));
  auto& weights = baseline.At(WideModule(4) + ".weight").bytes;
  for (size_t i = 0; i < weights.size() / 2; i += 16) PutBF16(weights, i, 0);
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-outlier", "layers.4.mlp.up_proj: SQNR 1",
              CheckVerdict::kWarnings);
}

TEST_CASE("another model, another shape and a missing weight are reported") {
  TestCheckpoint baseline;
  const TestCheckpoint checkpoint = WideExample(1, &baseline);
  TestTensor& weight = baseline.At(WideModule(0) + ".weight");
  std::ranges::reverse(weight.bytes);
  for (size_t i = 0; i < weight.bytes.size(); i += 2)
    std::swap(weight.bytes[i], weight.bytes[i + 1]);
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-unrelated", "dB",
              CheckVerdict::kBadValues);
  weight.shape = {kWideK, kWideN};
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-shape", "[64, 128], but [128, 64]",
              CheckVerdict::kBadValues);
  weight.name = "other.weight";
  const CheckReport report = RunCheck(checkpoint, &baseline);
  INFO(Lines(report));
  CHECK(report.AllFindings().size() == 2);
  CHECK(Lines(report).find("baseline-missing: " + WideModule(0) +
                           ": the baseline has no weight for this module") != std::string::npos);
  CHECK(Lines(report).find("baseline-missing: other.weight: the baseline has this tensor") !=
        std::string::npos);
}

TEST_CASE("tensors that are not quantized are compared with the baseline, too") {
  TestCheckpoint baseline;
  TestCheckpoint checkpoint = WideExample(1, &baseline);
  std::vector<std::byte> norm(kWideK * 2);
  for (size_t i = 0; i < kWideK; ++i) PutBF16(norm, i, 1 + static_cast<float>(i) / 64);
  for (TestCheckpoint* side : {&checkpoint, &baseline}) {
    side->tensors.push_back({"model.norm.weight", "BF16", {kWideK}, norm});
  }
  RequireSound(RunCheck(checkpoint, &baseline));
  // Rounding to another dtype is no difference.
  PutBF16(checkpoint.At("model.norm.weight").bytes, 5, 1.078125F + 0x1p-7F);
  RequireSound(RunCheck(checkpoint, &baseline));
  PutBF16(checkpoint.At("model.norm.weight").bytes, 5, 1.5F);
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-tensor-differs", "1 of 128 values differ",
              CheckVerdict::kWarnings);
  TestTensor& other = checkpoint.At("model.norm.weight");
  other.shape = {kWideK / 2};
  other.bytes.resize(kWideK);
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-shape", "[64], but [128] in the baseline",
              CheckVerdict::kBadValues);
  checkpoint.Remove("model.norm.weight");
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-missing",
              "model.norm.weight: the baseline has this tensor", CheckVerdict::kWarnings);
  checkpoint.tensors.push_back({"model.extra", "BF16", {kWideK}, norm});
  baseline.Remove("model.norm.weight");
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-missing",
              "no floating-point tensor of this name", CheckVerdict::kWarnings);
}

TEST_CASE("a tied head is compared through the embedding") {
  TestCheckpoint baseline;
  TestCheckpoint checkpoint = WideExample(1, &baseline);
  checkpoint.config["quantization_config"]["ignore"] = {"lm_head"};
  checkpoint.config["tie_word_embeddings"] = true;
  const TestTensor embedding = {
      "model.embed_tokens.weight", "BF16", {2, kWideK}, WideValues(2 * kWideK)};
  checkpoint.tensors.push_back(embedding);
  baseline.tensors.push_back(embedding);
  TestTensor head = embedding;
  head.name = "lm_head.weight";
  baseline.tensors.push_back(head);
  RequireSound(RunCheck(checkpoint, &baseline));
  baseline.At("lm_head.weight").bytes[1] = std::byte{0x40};
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-tensor-differs", "1 of 256 values differ",
              CheckVerdict::kWarnings);
  // The other way round: only the checkpoint stores the head.
  baseline.config["tie_word_embeddings"] = true;
  baseline.Remove("lm_head.weight");
  checkpoint.tensors.push_back(head);
  RequireOnly(RunCheck(checkpoint, &baseline), "tied-head-stored-twice", "", CheckVerdict::kSound);
  // Untied, it has to be there.
  checkpoint.config["quantization_config"]["ignore"] = Json::array();
  checkpoint.config["tie_word_embeddings"] = false;
  checkpoint.Remove("lm_head.weight");
  baseline.config["tie_word_embeddings"] = false;
  baseline.tensors.push_back(head);
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-missing", "lm_head.weight",
              CheckVerdict::kWarnings);
}

TEST_CASE("the baseline of a Conv1D has its inputs first") {
  TestCheckpoint baseline;
  TestCheckpoint checkpoint = WideExample(1, &baseline);
  const double sqnr_db = *RunCheck(checkpoint, &baseline).modules[0].sqnr_db;
  const std::string conv = "transformer.h.0.mlp.c_fc";
  for (TestTensor& tensor : checkpoint.tensors) {
    if (tensor.name.starts_with(WideModule(0) + ".")) {
      tensor.name.replace(0, WideModule(0).size(), conv);
    }
  }
  TestTensor& weight = baseline.At(WideModule(0) + ".weight");
  weight.name = conv + ".weight";
  const std::vector<std::byte> rows = weight.bytes;
  weight.shape = {kWideK, kWideN};
  for (uint64_t n = 0; n < kWideN; ++n) {
    for (uint64_t k = 0; k < kWideK; ++k) {
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>((n * kWideK + k) * 2), 2,
                  weight.bytes.begin() + static_cast<std::ptrdiff_t>((k * kWideN + n) * 2));
    }
  }
  // Only such models have such layers.
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-shape", "", CheckVerdict::kBadValues);
  baseline.config["model_type"] = "gpt2";
  const CheckReport report = RunCheck(checkpoint, &baseline);
  INFO(Lines(report));
  CHECK(report.modules[0].sqnr_db == sqnr_db);
}

TEST_CASE("outliers are told from the spread of their peers") {
  const auto mark = [](std::vector<double> values) {
    std::vector<PeerFigure> figures;
    for (const double value : values)
      figures.push_back({.peers = "x", .sqnr_db = value, .outlier_below_db = {}});
    MarkOutliers(figures);
    std::vector<size_t> outliers;
    for (size_t i = 0; i < figures.size(); ++i) {
      if (figures[i].outlier_below_db) outliers.push_back(i);
    }
    return outliers;
  };
  CHECK(mark({18, 18.1, 18.2, 14, 18}) == std::vector<size_t>{3});
  CHECK(mark({18, 18.1, 18.2, 15.5, 18}).empty());  // below 3 dB
  CHECK(mark({10, 14, 18, 22, 26}).empty());        // they differ by nature
  CHECK(mark({18, 18, 10}).empty());                // too few
  CHECK(mark({18, 18, 18, 18, 30}).empty());        // better is no problem
}

TEST_CASE("headers exclude a baseline") {
  Progress progress;
  CheckError(
      Check({.source = "a", .baseline = "b", .headers_only = true, .jobs = 1}, progress).status(),
      ErrorKind::kUsage, "--headers");
}

}  // namespace
}  // namespace prepack::testing
