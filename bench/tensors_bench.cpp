// What a tensor costs where a model has very many: whole runs of `prepack` on a mixture of experts
// of the least size, with as many tensors as the largest models have, and on half of it. Times
// should halve, and memory should not be far from that.
//
//   bench_tensors [RUNS [LAYERS [EXPERTS]]]
//   bench_tensors --write FOLDER LAYERS EXPERTS    writes such a checkpoint and ends

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "process.h"
#include "sample_checkpoint.h"
#include "scratch_folder.h"

namespace {

using prepack::Json;
using prepack::bench::Content;
using prepack::bench::Cost;
using prepack::bench::Fail;
using prepack::bench::SampleCheckpoint;
using prepack::bench::SampleFormat;

constexpr std::string_view kWrite = "--write";
// 494,595 tensors, nearly all of them weights and scales of 247,296 modules.
constexpr uint64_t kLayers = 92;
constexpr uint64_t kExperts = 896;
constexpr uint64_t kSize = 32;  // of a hidden state, and inside of an expert: a group of MXFP4
constexpr std::string_view kModel = "language_model.model";

// Layers alone are no model that could be loaded, so the config names no architecture.
Json Config(uint64_t layers, uint64_t experts) {
  return {{"model_type", "kimi_k3"},
          {"dtype", "bfloat16"},
          {"text_config",
           {{"model_type", "kimi_linear"},
            {"hidden_size", kSize},
            {"num_hidden_layers", layers},
            {"num_experts", experts},
            {"moe_intermediate_size", kSize}}}};
}

SampleCheckpoint Experts(uint64_t layers, uint64_t experts) {
  SampleCheckpoint checkpoint;
  for (const SampleFormat& known : prepack::bench::SampleFormats()) {
    if (known.id == "ct-mxfp4") checkpoint.format = known;
  }
  checkpoint.config = Config(layers, experts);
  checkpoint.ignored = {"re:.*lm_head", "re:.*self_attn.*", "re:.*gate$"};
  checkpoint.shards = layers;
  for (uint64_t layer = 0; layer < layers; ++layer) {
    const std::string name = fmt::format("{}.layers.{}", kModel, layer);
    checkpoint.plain.push_back({name + ".input_layernorm.weight", {kSize}, Content::kNorms});
    for (uint64_t expert = 0; expert < experts; ++expert) {
      for (const char* projection : {"w1", "w2", "w3"}) {
        checkpoint.modules.push_back(
            {fmt::format("{}.block_sparse_moe.experts.{}.{}", name, expert, projection), kSize,
             kSize});
      }
    }
  }
  checkpoint.plain.push_back({fmt::format("{}.norm.weight", kModel), {kSize}, Content::kNorms});
  return checkpoint;
}

void Write(const std::string& folder, uint64_t layers, uint64_t experts) {
  std::filesystem::create_directory(folder);
  const prepack::Status status = prepack::bench::WriteCheckpoint(folder, Experts(layers, experts));
  if (!status.ok()) Fail(status.ToString());
}

struct Command {
  std::string name;
  std::vector<std::string> line;
};

std::vector<Command> Commands(const std::string& source, const std::string& packed) {
  const std::string program = prepack::bench::ProgramBeside("prepack");
  return {{"plan", {program, "plan", source, "-t", "vllm-cpu", "--fuse"}},
          {"inspect", {program, "inspect", source}},
          {"check", {program, "check", source}},
          {"convert", {program, "convert", source, "-t", "vllm-cpu", "-o", packed, "--fuse"}},
          {"verify", {program, "verify", packed, "--source", source}}};
}

void Measure(uint64_t layers, uint64_t experts, int runs) {
  const prepack::bench::ScratchFolder scratch;
  const std::string source = (scratch.path() / "source").string();
  const std::string packed = (scratch.path() / "packed").string();
  // In a program of its own: what this one has in memory would count for those that it starts.
  prepack::bench::Run({prepack::bench::ProgramBeside("bench_tensors"), std::string(kWrite), source,
                       std::to_string(layers), std::to_string(experts)});
  const uint64_t tensors = layers * (experts * 6 + 1) + 1;
  const std::vector<Command> commands = Commands(source, packed);
  std::vector<std::vector<Cost>> costs(commands.size());
  for (int run = 0; run <= runs; ++run) {
    std::filesystem::remove_all(packed);
    for (size_t i = 0; i < commands.size(); ++i) {
      const Cost cost = prepack::bench::Run(commands[i].line);
      if (run != 0) costs[i].push_back(cost);  // the first one warms the caches
    }
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    const Cost median = prepack::bench::Summarize(costs[i]);
    fmt::print("{:<10}{:>10}{:>10.2f}{:>10.2f}{:>10.0f}{:>12.1f}{:>12.2f}\n", commands[i].name,
               tensors, median.seconds, median.cpu_seconds, median.resident,
               1e6 * median.seconds / static_cast<double>(tensors),
               1024 * median.resident / static_cast<double>(tensors));
  }
}

void MeasureAll(int runs, uint64_t layers, uint64_t experts) {
  if (runs < 1) Fail("RUNS must be a number above 0");
  if (layers < 2 || experts < 2) Fail("LAYERS and EXPERTS must be numbers above 1");
  fmt::print("{:<10}{:>10}{:>10}{:>10}{:>10}{:>12}{:>12}\n", fmt::format("{} runs", runs),
             "tensors", "seconds", "CPU s", "MiB", "µs/tensor", "KiB/tensor");
  Measure(layers / 2, experts, runs);
  Measure(layers, experts, runs);
}

uint64_t Number(const char* text) {
  return std::strtoull(text, nullptr, 10);
}

}  // namespace

int main(int argc, char** argv) {
  return prepack::bench::RunBenchmark([&] {
    if (argc == 5 && argv[1] == kWrite) return Write(argv[2], Number(argv[3]), Number(argv[4]));
    MeasureAll(argc > 1 ? std::atoi(argv[1]) : 3, argc > 2 ? Number(argv[2]) : kLayers,
               argc > 3 ? Number(argv[3]) : kExperts);
  });
}
