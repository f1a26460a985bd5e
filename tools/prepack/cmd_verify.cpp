// prepack verify: is a packed folder still the model, and does a GEMM compute with it what it
// should?

#include <memory>
#include <optional>

#include "command.h"
#include "verify_output.h"

namespace prepack::cli {
namespace {

struct VerifyCommand {
  CommonOptions common;
  std::string folder;
  std::string source;
  std::string engine = "onednn";
  std::vector<std::string> min_sqnr;
  unsigned jobs = 0;
};

Result<VerifyOptions> ToOptions(const VerifyCommand& command) {
  VerifyOptions options;
  options.folder = command.folder;
  if (!command.source.empty()) options.source = command.source;
  options.engine = command.engine == "reference" ? EngineChoice::kReference : EngineChoice::kOneDnn;
  for (const std::string& text : command.min_sqnr) {
    Result<SqnrBar> bar = ParseSqnrBar(text);
    if (!bar.ok()) return bar.status();
    options.min_sqnr.push_back(*std::move(bar));
  }
  options.jobs = command.jobs;
  return options;
}

}  // namespace

void AddVerify(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<VerifyCommand>();
  CLI::App* command = AddCommand(
      app, "verify", "Prove that a packed folder holds the model and computes like it",
      options->common,
      "Levels: integrity (hashes), exactness (against the source), GEMM (on the packed weights).\n"
      "A level that cannot run is \"not run\", never \"passed\": the exit code is then 6.\n"
      "Examples:\n"
      "  prepack verify packed/ --source Llama-3-8B-W4A16\n"
      "  prepack verify packed/ --source Llama-3-8B-W4A16 --json | jq .verdict");
  command->add_option("OUT", options->folder, "Packed folder")->required();
  command->add_option("--source", options->source, "The checkpoint that the folder was made from")
      ->type_name("SRC");
  command
      ->add_option(
          "--engine", options->engine,
          "Who multiplies 4-bit weights with 16-bit activations: onednn, or reference, the "
          "model of the consumer's kernel that multiplies all others")
      ->check(CLI::IsMember({"onednn", "reference"}))
      ->capture_default_str()
      ->type_name("ENGINE");
  command
      ->add_option("--min-sqnr", options->min_sqnr,
                   "Bar of the end-to-end signal-to-quantization-noise ratio, in dB (default: 40, "
                   "with 8-bit integer activations 35, with FP8 activations 25)")
      ->type_name("DB");
  command->add_option("-j,--jobs", options->jobs, "Threads (default: one per CPU)")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  command->callback([options, &exit_code] {
    const Result<VerifyOptions> verify = ToOptions(*options);
    exit_code = verify.ok() ? VerifyAndPrint(*verify, options->common) : Fail(verify.status());
  });
}

}  // namespace prepack::cli
