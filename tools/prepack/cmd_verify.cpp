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
  std::optional<double> min_sqnr;
  unsigned jobs = 0;
};

VerifyOptions ToOptions(const VerifyCommand& command) {
  VerifyOptions options;
  options.folder = command.folder;
  if (!command.source.empty()) options.source = command.source;
  options.engine = command.engine == "reference" ? EngineChoice::kReference : EngineChoice::kOneDnn;
  options.min_end_to_end_sqnr_db = command.min_sqnr;
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
      ->check(CLI::Validator(
          [](const std::string& text) {
            // CLI::Range lets "nan" through, with which no figure is too low.
            double value = 0;
            const bool number = CLI::detail::lexical_cast(text, value);
            return number && value >= 0 && value <= 200
                       ? std::string()
                       : text + " is not a number of dB from 0 to 200";
          },
          "", "0 - 200"))
      ->type_name("DB");
  command->add_option("-j,--jobs", options->jobs, "Threads (default: one per CPU)")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  command->callback(
      [options, &exit_code] { exit_code = VerifyAndPrint(ToOptions(*options), options->common); });
}

}  // namespace prepack::cli
