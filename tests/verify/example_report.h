#pragma once

// Reports made by hand, for what reads and shows them.

#include <limits>
#include <string>
#include <utility>

#include "prepack/verify/report/report.h"

namespace prepack::testing {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct ExampleFigures {
  double kernel_db = 55.5;
  double end_to_end_db = 52.25;
};

inline InputFigures ExampleInput(std::string name, const ExampleFigures& figures) {
  return {.input = std::move(name),
          .rows = 16,
          .kernel = {.sqnr_db = figures.kernel_db,
                     .cosine = 0.99999,
                     .max_abs_error = 0.125,
                     .worst_channel = 7,
                     .worst_channel_sqnr_db = figures.kernel_db - 4},
          .end_to_end = {.sqnr_db = figures.end_to_end_db,
                         .cosine = 0.9999,
                         .max_abs_error = 0.25,
                         .worst_channel = 9,
                         .worst_channel_sqnr_db = figures.end_to_end_db - 5},
          .kernel_bar_db = 48,
          .end_to_end_bar_db = 40.0};
}

// A module that passed all but quality.
inline ModuleVerification ExampleModule(std::string name, const ExampleFigures& figures = {}) {
  ModuleVerification module;
  module.module = std::move(name);
  module.layout = "vllm-cpu/wna16";
  module.n = 128;
  module.k = 384;
  for (const Level level : {Level::kIntegrity, Level::kExactness, Level::kGemm}) {
    module.state(level) = LevelState::kPassed;
  }
  module.exact = true;
  module.max_scale_difference = 0;
  module.gemm = GemmFigures{.implementation = "brg_matmul:avx2",
                            .activations = "f32 (bf16 values)",
                            .channels = 128,
                            .inputs = {ExampleInput("gaussian", figures)},
                            .second_implementation = {},
                            .agreement_db = {}};
  return module;
}

// Passed; modules "a", "b" and so on.
inline VerifyReport ExampleReport(size_t modules = 2) {
  VerifyReport report;
  report.folder = "packed";
  report.source = "model";
  report.target = "vllm-cpu";
  report.engine = "onednn 3.13.2";
  for (const Level level : {Level::kIntegrity, Level::kExactness, Level::kGemm}) {
    report.level(level).state = LevelState::kPassed;
  }
  report.level(Level::kQuality).asked = false;
  report.level(Level::kQuality).reason = "no unquantized model was given (--baseline)";
  for (size_t i = 0; i < modules; ++i) {
    report.modules.push_back(ExampleModule(std::string(1, static_cast<char>('a' + i % 26)) +
                                           (i < 26 ? "" : std::to_string(i / 26))));
  }
  return report;
}

// With everything that a report can have, and every kind of figure.
inline VerifyReport FullReport() {
  VerifyReport report = ExampleReport(3);
  report.source_found = true;
  report.baseline = "float";
  report.activations = "x.safetensors";
  report.sample = Sample{.fraction = 0.5, .seed = 7, .modules = 2};
  report.against = "earlier.json";
  report.regression.asked = true;
  report.regression.state = LevelState::kPassed;
  report.regression.notes.push_back({"b", "module b", "it is new"});
  LevelResult& quality = report.level(Level::kQuality);
  quality = {.state = LevelState::kNotRun, .asked = true, .reason = "no such model"};
  report.level(Level::kGemm).FailModule("a", "the kernel SQNR is too low");
  report.level(Level::kIntegrity).Fail("config.json", "it is missing");

  ModuleVerification& a = report.modules[0];
  a.state(Level::kGemm) = LevelState::kFailed;
  a.gemm->inputs.push_back(ExampleInput("one-hot", {.kernel_db = kInfinity, .end_to_end_db = 60}));
  a.gemm->inputs.push_back(
      ExampleInput("outliers", {.kernel_db = kNan, .end_to_end_db = -kInfinity}));
  a.gemm->inputs.back().end_to_end_bar_db.reset();
  a.gemm->second_implementation = "model of vllm-cpu/wna16";
  a.gemm->agreement_db = kInfinity;
  a.quality =
      QualityFigures{.weight_sqnr_db = 20.5, .output_sqnr_db = std::nullopt, .below_peers_db = 3.5};
  ModuleVerification& c = report.modules[2];
  c.looked_at = false;
  c.levels = {};
  c.gemm.reset();
  c.exact.reset();
  c.max_scale_difference.reset();
  return report;
}

}  // namespace prepack::testing
