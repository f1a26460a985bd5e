// prepack verify: is a packed folder still the model, and does a GEMM compute with it what it
// should?

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "gguf_commands.h"
#include "part_options.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/io/missing_files.h"
#include "shell_carrier.h"
#include "verify_output.h"

namespace prepack::cli {
namespace {

constexpr char kExamples[] =
    "  prepack verify packed/ --source Llama-3-8B-W4A16\n"
    "            verifies everything against the checkpoint that the folder was made from\n"
    "  prepack verify packed/ --skip exactness,gemm\n"
    "            checks that the bytes are intact, without the source; ends with 6 if they are\n"
    "  prepack verify packed/ --source SRC --sample 0.1 --junit verify.xml --markdown summary.md\n"
    "            verifies a tenth of the modules, for CI\n"
    "  prepack verify packed/ --source SRC --json > verify.json\n"
    "  prepack verify packed/ --source SRC --against verify.json --tolerance 0.2\n"
    "            fails if a figure is more than 0.2 dB below the earlier one\n"
    "  prepack verify packed/ --source SRC --min-sqnr 35 --min-sqnr 'mlp\\.down_proj=30'\n"
    "            lowers the bar for all modules, and more for those that are known to be hard\n"
    "  prepack verify model.gguf --source SRC\n"
    "            verifies a GGUF file that `prepack convert` has made\n"
    "  prepack verify packed/ --source SRC --part 3/32 --report part-3.json\n"
    "            verifies a share, on one of 32 machines\n"
    "  prepack verify packed/ --source SRC --merge part-*.json\n"
    "            gives the verdict of all 32 together";

constexpr char kNotes[] =
    "Levels\n"
    "  integrity  every file and tensor has the bytes that were written\n"
    "  exactness  every code, zero point, scale and other tensor equals the source's\n"
    "  gemm       products of the packed weights agree with those of the source\n"
    "    quality    weights and products compared with the unquantized model (--baseline)\n"
    "A level that cannot run or proves nothing is \"not run\", never \"passed\".\n"
    "\n"
    "Exit codes: 0 everything you asked for passed; 1 something failed; 6 nothing failed, but a\n"
    "level could not run or was skipped; 2 usage; 3 a manifest or report is malformed; 4 the\n"
    "system failed; 5 not supported. prepack writes the files of --junit, --html and --markdown\n"
    "with 0, 1 and 6, each whole or not at all.";

struct VerifyCommand {
  CommonOptions common;
  std::string folder;
  std::string source;
  std::string baseline;
  std::string activations;
  std::vector<std::string> skip;
  std::string engine{EngineChoiceName(EngineChoice::kAuto)};
  bool repack = false;
  bool all_channels = false;
  bool strict = false;
  std::vector<std::string> min_sqnr;
  std::string sample;
  std::string seed;
  std::string tolerance;
  VerifyOutputs outputs;
  GgufFlags gguf;
  PartFlags parts;
  std::string fetch;
  unsigned jobs = 0;
  uint64_t memory_limit = 0;
};

// A whole decimal number, and nothing else. CLI11 itself takes -1 for the largest number there is.
template <typename Number>
std::optional<Number> ParseNumber(const std::string& text) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

std::vector<std::string> LevelNames() {
  std::vector<std::string> names;
  names.reserve(kLevels.size());
  for (const Level level : kLevels) names.emplace_back(LevelName(level));
  return names;
}

std::vector<std::string> EngineNames() {
  std::vector<std::string> names;
  names.reserve(kEngineChoices.size());
  for (const EngineChoice choice : kEngineChoices) names.emplace_back(EngineChoiceName(choice));
  return names;
}

// Names of levels, divided by commas.
Status ParseLevels(std::string_view text, std::vector<Level>& levels) {
  const std::vector<std::string> known = LevelNames();
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    const auto level = std::ranges::find(kLevels, name, LevelName);
    if (level == kLevels.end()) {
      return Usage("--skip", "unknown level")
          .Found(name)
          .Expected("integrity, exactness, gemm or quality")
          .Hint(DidYouMean(name, known));
    }
    if (std::ranges::find(levels, *level) == levels.end()) levels.push_back(*level);
    if (comma == std::string_view::npos) return {};
    text.remove_prefix(comma + 1);
  }
}

// Is a level asked for that is not skipped?
bool AnythingLeft(const VerifyOptions& options) {
  return std::ranges::any_of(kLevels, [&](Level level) {
    const bool asked = level != Level::kQuality || options.baseline.has_value();
    return asked && std::ranges::find(options.skip, level) == options.skip.end();
  });
}

Result<SampleChoice> ParseSample(const VerifyCommand& command) {
  const std::optional<double> fraction = ParseNumber<double>(command.sample);
  if (!fraction || !(*fraction > 0 && *fraction <= 1)) {
    return Usage("--sample", "not a fraction above 0 and at most 1").Found(command.sample);
  }
  SampleChoice sample{.fraction = *fraction};
  if (command.seed.empty()) return sample;
  const std::optional<uint64_t> seed = ParseNumber<uint64_t>(command.seed);
  if (!seed) return Usage("--seed", "not a whole number from 0 to 2^64 - 1").Found(command.seed);
  sample.seed = *seed;
  return sample;
}

Result<double> ParseTolerance(const std::string& text) {
  const std::optional<double> decibel = ParseNumber<double>(text);
  if (decibel && *decibel >= 0 && *decibel <= 200) return *decibel;
  return Usage("--tolerance", "not a number of dB from 0 to 200").Found(text);
}

Result<VerifyOptions> ToOptions(const VerifyCommand& command) {
  VerifyOptions options;
  options.folder = command.folder;
  if (!command.source.empty()) options.source = command.source;
  if (!command.baseline.empty()) options.baseline = command.baseline;
  if (!command.activations.empty()) options.activations = command.activations;
  for (const std::string& text : command.skip) {
    PREPACK_TRY(ParseLevels(text, options.skip));
  }
  if (!AnythingLeft(options)) return Usage("--skip", "nothing is left to verify");
  options.engine = *std::ranges::find(kEngineChoices, command.engine, EngineChoiceName);
  options.repack = command.repack;
  if (command.all_channels) options.sampled_weights = UINT64_MAX;
  options.strict = command.strict;
  for (const std::string& text : command.min_sqnr) {
    PREPACK_TRY_ASSIGN(SqnrBar bar, ParseSqnrBar(text));
    options.min_sqnr.push_back(std::move(bar));
  }
  if (!command.sample.empty()) {
    PREPACK_TRY_ASSIGN(const SampleChoice sample, ParseSample(command));
    options.sample = sample;
  }
  PREPACK_TRY_ASSIGN(options.gguf, command.gguf.ToSource());
  options.jobs = command.jobs;
  options.memory_limit = command.memory_limit;
  return options;
}

// The carrier must outlive the verification.
Status BringMissing(ShellCarrier& carrier) {
  PREPACK_TRY(carrier.Check());
  MissingFiles::OfProcess().Bring(
      [&carrier](const std::string& name, const std::filesystem::path& path) {
        return carrier.Carry(name, path, /*stop=*/false);
      });
  return {};
}

ExitCodeValue RunVerify(const VerifyCommand& command) {
  const Result<VerifyOptions> options = ToOptions(command);
  if (!options.ok()) return Fail(options.status());
  ShellCarrier fetch("--fetch", command.fetch);
  const Status brings = command.fetch.empty() ? Status() : BringMissing(fetch);
  if (!brings.ok()) return Fail(brings);
  VerifyOutputs outputs = command.outputs;
  if (!command.tolerance.empty()) {
    const Result<double> tolerance = ParseTolerance(command.tolerance);
    if (!tolerance.ok()) return Fail(tolerance.status());
    outputs.tolerance_db = *tolerance;
  }
  outputs.parts = command.parts;
  KeepFreedMemory();
  return command.parts.IsPart() ? VerifyPartAndPrint(*options, command.parts, command.common)
                                : VerifyAndPrint(*options, outputs, command.common);
}

// An empty value is a variable of a script that was never set: nothing it could mean is safe.
CLI::Validator NotEmpty() {
  return {[](const std::string& text) { return text.empty() ? "must not be empty" : ""; }, ""};
}

void AddInputs(CLI::App& command, VerifyCommand& options) {
  command
      .add_option("OUT", options.folder,
                  "Packed folder, or its name in the hub cache; or a GGUF file")
      ->required();
  command
      .add_option("--source", options.source,
                  "The checkpoint that the folder was made from (default: the path in the "
                  "manifest, if it exists)")
      ->type_name("SRC");
  options.gguf.AddSourceTo(command);
  command
      .add_option("--baseline", options.baseline,
                  "The unquantized checkpoint; enables the level quality")
      ->type_name("FLOAT");
  command
      .add_option("--activations", options.activations,
                  "Also multiply with recorded activations: a .safetensors file with one tensor x "
                  "[M, K] per module, under the module's name")
      ->type_name("FILE");
}

void AddFetch(CLI::App& command, VerifyCommand& options) {
  command
      .add_option("--fetch", options.fetch,
                  "Run COMMAND for each shard of OUT or SRC that is to be read and of which only "
                  "headers are here; {file} is its name, {path} where it is to be written")
      ->type_name("COMMAND");
}

void AddLevels(CLI::App& command, VerifyCommand& options) {
  command
      .add_option("--skip", options.skip,
                  "Levels to skip: integrity, exactness, gemm, quality. Skipping one of the first "
                  "three makes the verdict \"not run\" (6)")
      ->type_name("LEVEL[,LEVEL...]")
      ->check(Offers(LevelNames()))
      ->allow_extra_args(false);
  command
      .add_option("--engine", options.engine,
                  "What multiplies: onednn, together with models of the consumers' kernels; "
                  "reference, the models alone; or auto, which is onednn where it can be loaded")
      ->check(CLI::IsMember(EngineNames()))
      ->capture_default_str()
      ->type_name("ENGINE");
  command.add_flag("--all-channels", options.all_channels,
                   "Multiply every output channel with all activations, not a sample of them: "
                   "the figures are of the whole module, for some ten times the time");
  command.add_flag("--repack", options.repack,
                   "Let oneDNN reorder weights if its primitive wants another form on this CPU");
  command
      .add_option("--min-sqnr", options.min_sqnr,
                  "Lowest end-to-end signal-to-quantization-noise ratio that passes, in dB, for "
                  "all modules or for those whose name matches the regular expression. May be "
                  "repeated; the last match decides (default: 40, with 8-bit integer activations "
                  "35, with FP8 activations 28)")
      ->type_name("[PATTERN=]DB")
      ->allow_extra_args(false);
  command.add_flag(
      "--strict", options.strict,
      "Fail if the conversion overruled the checkpoint: other activations, dequantized weights");
  CLI::Option* sample =
      command
          .add_option(
              "--sample", options.sample,
              "Verify only this fraction of the modules, some of every kind; the report says so")
          ->type_name("FRACTION");
  command
      .add_option("--seed", options.seed,
                  "Seed that decides which modules --sample takes (default: 0)")
      ->needs(sample)
      ->type_name("N");
}

void AddReports(CLI::App& command, VerifyOutputs& outputs, std::string& tolerance) {
  command.add_option("--junit", outputs.junit, "Write the report as JUnit XML")->type_name("FILE");
  command.add_option("--html", outputs.html, "Write the report as one self-contained page")
      ->type_name("FILE");
  command
      .add_option("--markdown", outputs.markdown,
                  "Write a summary as GitHub-flavoured Markdown, at most 1 MiB")
      ->type_name("FILE");
  CLI::Option* against = command
                             .add_option("--against", outputs.against,
                                         "An earlier report of --json: fail if a figure fell, or "
                                         "if something that passed then does not pass now")
                             ->type_name("REPORT.json");
  command
      .add_option("--tolerance", tolerance,
                  "How far a figure may fall below the one in --against, in dB (default: 0.5)")
      ->needs(against)
      ->type_name("DB");
}

}  // namespace

void AddVerify(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<VerifyCommand>();
  CLI::App* command =
      AddCommand(app, "verify", "Prove that a packed folder holds the model and computes like it",
                 options->common, {.examples = kExamples, .notes = kNotes});
  AddInputs(*command, *options);
  AddLevels(*command, *options);
  AddReports(*command, options->outputs, options->tolerance);
  options->parts.AddTo(*command, {"--junit", "--html", "--markdown", "--against"});
  AddFetch(*command, *options);
  for (CLI::Option* option : command->get_options()) {
    if (option->get_items_expected_max() > 0) option->check(NotEmpty());
  }
  command->add_option("-j,--jobs", options->jobs, "Threads (default: one per CPU)")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  AddMemoryLimit(*command, options->memory_limit);
  AddProgressOptions(*command, options->common);
  command->callback([options, &exit_code] {
    exit_code =
        WithModels({&options->folder, &options->source, &options->baseline, &options->gguf.like},
                   [&] { return RunVerify(*options); });
  });
}

}  // namespace prepack::cli
