// prepack tune: which layout is the fastest on this machine, and what it costs.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "options.h"
#include "prepack/convert/plan.h"
#include "prepack/io/file.h"
#include "prepack/tune/tune.h"
#include "terminal.h"
#include "tune_output.h"

namespace prepack::cli {
namespace {

constexpr char kTuneExamples[] =
    "  prepack tune Llama-3-8B-W4A16 --target onednn\n"
    "            measures every layout of the target, and recommends the one with the least time\n"
    "  prepack tune Llama-3-8B-W4A16 -t vllm-cpu,zentorch --python venv --threads 8 -o tuned.txt\n"
    "  prepack convert Llama-3-8B-W4A16 -o packed -t vllm-cpu --scheme @tuned.txt\n"
    "            packs what was chosen\n"
    "  prepack tune Llama-3-8B-W4A16 -t onednn --for throughput --min-sqnr 40\n"
    "            the fastest at the largest batch that keeps 40 dB, mixed if that is faster";

constexpr char kTuneNotes[] =
    "The machine should be idle. prepack packs a few layers of the model into a temporary folder\n"
    "(TMPDIR), and runs the kernels on them; nothing is estimated. A kernel that cannot run here\n"
    "is \"not measured\", with the reason, and never recommended.\n"
    "\n"
    "Exit codes: 0 there is a recommendation; 1 nothing that was measured reaches --min-sqnr;\n"
    "6 no target could be measured here; 2 usage; 3 malformed; 4 the system failed; 5 not\n"
    "supported. prepack writes the file of -o with 0 only,\n"
    "and the page of --html with 0, 1 and 6.";

struct TuneCommand {
  CommonOptions common;
  std::string source;
  std::vector<std::string> targets;
  std::vector<uint64_t> batches;
  unsigned threads = 0;
  uint64_t layers = TuneOptions().layers;
  double seconds = TuneOptions().seconds;
  std::string activations;
  std::string python;
  std::string dtype;
  std::string fallback = "keep";
  std::vector<std::string> accepted;
  std::string goal = "latency";
  std::optional<double> min_sqnr;
  std::string output;
  std::string html;
};

Result<TuneOptions> ToOptions(const TuneCommand& command) {
  TuneOptions options{.source = command.source, .targets = command.targets};
  if (!command.batches.empty()) options.batches = command.batches;
  options.threads = command.threads;
  options.layers = command.layers;
  options.seconds = command.seconds;
  if (!command.activations.empty()) options.activations = command.activations;
  options.python = command.python;
  if (!command.dtype.empty()) {
    options.activation_dtype = ActivationDTypeFromName(command.dtype);
  }
  if (command.fallback == "dequantize") options.fallback = Fallback::kDequantize;
  PREPACK_TRY_ASSIGN(AcceptedFindings accepted,
                     AcceptedFindings::Make(command.accepted, AcceptedBy::kConversion, "--accept"));
  options.accepted = std::move(accepted);
  options.goal = *GoalFromName(command.goal);
  options.min_sqnr_db = command.min_sqnr;
  return options;
}

Status CheckOutput(const TuneCommand& command) {
  OutputPaths paths;
  paths.ProtectFolder(command.source, "the checkpoint");
  if (!command.activations.empty()) paths.ProtectFile(command.activations, "--activations");
  if (!command.output.empty()) PREPACK_TRY(paths.Add("--output", command.output));
  return command.html.empty() ? Status() : paths.Add("--html", command.html);
}

ExitCodeValue ExitCodeOf(const TuneReport& report) {
  if (report.choice) return kExitDone;
  return report.unreachable ? kExitCheckFailed : kExitNotRun;
}

ExitCodeValue RunTune(const TuneCommand& command) {
  if (const Status paths = CheckOutput(command); !paths.ok()) return Fail(paths);
  const Result<TuneOptions> options = ToOptions(command);
  if (!options.ok()) return Fail(options.status());
  ProgressDisplay display(command.common);
  const Result<TuneReport> report = Tune(*options, display.progress());
  display.Stop();
  if (!report.ok()) return Fail(report.status());
  if (report->choice && !command.output.empty()) {
    const Status written = WriteFileAtomically(command.output, SchemeFileText(*report));
    if (!written.ok()) return Fail(written);
  }
  if (!command.html.empty()) {
    const Status written = WriteFileAtomically(command.html, TuneHtml(*report));
    if (!written.ok()) return Fail(written);
  }
  if (command.common.json) {
    PrintJson(TuneJson(*report));
  } else if (!command.common.quiet) {
    Print(TuneText(*report, command.output));
  } else if (!report->choice) {
    return Fail({report->unreachable ? ErrorKind::kCheckFailed : ErrorKind::kUnavailable,
                 command.source, report->why_no_choice});
  }
  return ExitCodeOf(*report);
}

void AddMeasuring(CLI::App& command, TuneCommand& options) {
  command
      .add_option("-t,--target", options.targets,
                  "Runtimes whose layouts are compared: vllm-cpu, zentorch, vllm-arm, onednn")
      ->required()
      ->delimiter(',')
      ->check(Offers({"vllm-cpu", "zentorch", "vllm-arm", "onednn"}))
      ->type_name("TARGET[,TARGET...]")
      ->allow_extra_args(false);
  command
      .add_option("--batch", options.batches,
                  "Numbers of tokens that are multiplied at once: in a step of decoding one per "
                  "sequence, in prefill all of a chunk (default: 1,8,64,512)")
      ->delimiter(',')
      ->check(CLI::Range(uint64_t{1}, uint64_t{65536}))
      ->type_name("N[,N...]")
      ->allow_extra_args(false);
  command
      .add_option("--threads", options.threads,
                  "Threads that the server will have, each on a CPU of its own, on different cores "
                  "as far as there are enough (default: one per core)")
      ->check(CLI::Range(1U, 4096U))
      ->type_name("N");
  command
      .add_option("--layers", options.layers,
                  "Layers of each kind of module that accuracy is measured on, from the first to "
                  "the last")
      ->check(CLI::Range(uint64_t{1}, uint64_t{100000}))
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("--time", options.seconds,
                  "Seconds that kernels may run, about. It ends earlier if all are ranked")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str()
      ->type_name("SECONDS");
  command
      .add_option("--activations", options.activations,
                  "Measure accuracy with recorded activations: a .safetensors file with one tensor "
                  "x [M, K] per module, under the module's name")
      ->type_name("FILE");
  command
      .add_option("--python", options.python,
                  "Python, or the folder of an environment, that has vLLM and its plug-in prepack "
                  "(default: the active one, or python3)")
      ->type_name("PYTHON");
}

void AddPlanning(CLI::App& command, TuneCommand& options) {
  command
      .add_option("--dtype", options.dtype,
                  "Dtype of the activations at run time: bf16, f16 or f32 (default: the dtype in "
                  "config.json)")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}))
      ->type_name("DTYPE");
  command
      .add_option("--fallback", options.fallback,
                  "What convert will do with a module that no layout takes: keep it as stored, or "
                  "dequantize it to bf16, which is then a candidate, too")
      ->check(CLI::IsMember({"keep", "dequantize"}))
      ->capture_default_str()
      ->type_name("WHAT");
  AddAccept(command, options.accepted, kAcceptToRead)
      .check(Offers({ConvertibleFindings().begin(), ConvertibleFindings().end()}));
}

void AddChoosing(CLI::App& command, TuneCommand& options) {
  command
      .add_option("--for", options.goal,
                  "What to recommend: latency, the least time at the smallest batch; throughput, "
                  "the least at the largest; accuracy; or size")
      ->check(CLI::IsMember({"latency", "throughput", "accuracy", "size"}))
      ->capture_default_str()
      ->type_name("GOAL");
  command
      .add_option("--min-sqnr", options.min_sqnr,
                  "Lowest signal-to-quantization-noise ratio of what is recommended, in dB: of the "
                  "mean of noise over signal of all modules")
      ->check(CLI::Range(0.0, 200.0))
      ->type_name("DB");
  command
      .add_option("-o,--output", options.output,
                  "Write the --scheme arguments of the recommendation, for convert --scheme @FILE")
      ->type_name("FILE");
  command
      .add_option("--html", options.html,
                  "Write the result as one self-contained page, with time against accuracy of all "
                  "candidates")
      ->type_name("FILE");
}

}  // namespace

void AddTune(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<TuneCommand>();
  CLI::App* command = AddCommand(
      app, "tune", "Measure which layout is the fastest on this machine, and what it costs",
      options->common, {.examples = kTuneExamples, .notes = kTuneNotes});
  command->add_option("SRC", options->source, kCheckpointArgument)->required();
  AddMeasuring(*command, *options);
  AddPlanning(*command, *options);
  AddChoosing(*command, *options);
  AddProgressOptions(*command, options->common);
  command->callback([options, &exit_code] {
    exit_code = WithModels({&options->source}, [&] { return RunTune(*options); });
  });
}

}  // namespace prepack::cli
