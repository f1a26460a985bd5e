// Writes a quantized checkpoint of full size with random codes: what `prepack convert` is measured
// with. The same options give the same bytes everywhere.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>

#include "llama_checkpoint.h"

namespace {

using prepack::Status;
using prepack::bench::GptOssCheckpoint;
using prepack::bench::GptOssShape;
using prepack::bench::LlamaCheckpoint;
using prepack::bench::LlamaShape;
using prepack::bench::SampleCheckpoint;
using prepack::bench::SampleFormat;

// K of a module; far more than any model has.
constexpr uint64_t kMaxSize = uint64_t{1} << 20;

struct Options {
  std::string folder;
  std::string format = "ct-w4a16";
  std::optional<uint64_t> hidden;
  std::optional<uint64_t> intermediate;
  std::optional<uint64_t> tokens;
  LlamaShape shape;
  uint64_t shards = 1;
  uint64_t seed = 1;
  bool sparse = false;
};

std::map<std::string, const SampleFormat*> FormatsById() {
  std::map<std::string, const SampleFormat*> formats;
  for (const SampleFormat& format : prepack::bench::SampleFormats()) formats[format.id] = &format;
  const SampleFormat& stacked = prepack::bench::StackedMxfp4();
  formats[stacked.id] = &stacked;
  return formats;
}

void AddOptions(CLI::App& app, Options& options) {
  app.add_option("OUT", options.folder, "Folder to make")->required();
  app.add_option("-f,--format", options.format, "How it is quantized")
      ->check(CLI::IsMember(FormatsById()))
      ->capture_default_str();
  app.add_option("-l,--layers", options.shape.layers, "Layers")
      ->check(CLI::Range(uint64_t{1}, uint64_t{10000}))
      ->capture_default_str();
  app.add_option("--hidden", options.hidden, "Size of a hidden state (4096; of gpt-oss 2880)")
      ->check(CLI::Range(uint64_t{128}, kMaxSize));
  app.add_option("--intermediate", options.intermediate,
                 "Size inside of an MLP (14336; of gpt-oss 2880)")
      ->check(CLI::Range(uint64_t{128}, kMaxSize));
  app.add_option("--experts", options.shape.experts,
                 "MLPs of each layer, as a mixture of experts has them; 0: a plain MLP, of gpt-oss "
                 "32 experts")
      ->check(CLI::Range(uint64_t{0}, uint64_t{100000}))
      ->capture_default_str();
  app.add_flag("--embeddings", options.shape.embeddings, "With embeddings and head (2.1 GB)");
  app.add_option("--tokens", options.tokens, "Size of the vocabulary (128256; of gpt-oss 201088)")
      ->check(CLI::Range(uint64_t{1}, kMaxSize));
  app.add_option("--shards", options.shards, "Files")
      ->check(CLI::Range(uint64_t{1}, uint64_t{99999}))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Other numbers")->capture_default_str();
  app.add_flag("--sparse", options.sparse,
               "All codes are zeros that take no disk: for sizes that no disk holds");
}

SampleCheckpoint MakeCheckpoint(const Options& options) {
  if (options.format == prepack::bench::StackedMxfp4().id) {
    GptOssShape shape;
    shape.layers = options.shape.layers;
    shape.hidden = options.hidden.value_or(shape.hidden);
    shape.intermediate = options.intermediate.value_or(shape.intermediate);
    if (options.shape.experts != 0) shape.experts = options.shape.experts;
    shape.embeddings = options.shape.embeddings;
    shape.tokens = options.tokens.value_or(shape.tokens);
    return GptOssCheckpoint(shape);
  }
  LlamaShape shape = options.shape;
  shape.hidden = options.hidden.value_or(shape.hidden);
  shape.intermediate = options.intermediate.value_or(shape.intermediate);
  shape.tokens = options.tokens.value_or(shape.tokens);
  SampleCheckpoint checkpoint = LlamaCheckpoint(shape);
  checkpoint.format = *FormatsById().at(options.format);
  return checkpoint;
}

Status Generate(const Options& options) {
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) {
    return prepack::SystemError(options.folder, "cannot make the folder", error.value());
  }
  SampleCheckpoint checkpoint = MakeCheckpoint(options);
  checkpoint.shards = options.shards;
  checkpoint.seed = options.seed;
  checkpoint.sparse = options.sparse;
  return prepack::bench::WriteCheckpoint(options.folder, checkpoint);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Writes a checkpoint in the shape of Llama-3-8B or gpt-oss-20b, with random codes.",
               "generate_checkpoint"};
  Options options;
  AddOptions(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // 0: --help
  }
  const Status status = Generate(options);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.ToString());
  return prepack::ExitCode(status);
}
