#include "gguf_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "json_reports.h"
#include "prepack/base/text.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/plan.h"
#include "prepack/doctor/python_packages.h"
#include "prepack/gguf/blocks.h"
#include "prepack/io/scratch_folder.h"
#include "prepack/packed/packed_model.h"
#include "prepack/verify/gguf_conversion_check.h"
#include "table.h"
#include "terminal.h"
#include "verify_output.h"

namespace prepack::cli {
namespace {

// Options that mean nothing for GGUF, and what they are when they were not given.
Status CheckFlags(const PlanFlags& flags) {
  const PlanFlags none;
  return RejectForGguf({{"--dtype", !flags.dtype.empty()},
                        {"--scheme", !flags.schemes.empty()},
                        {"--scales", flags.scales != none.scales},
                        {"--onednn-form", flags.onednn_form != none.onednn_form},
                        {"--fuse", flags.fuse},
                        {"--numa", flags.numa_nodes != none.numa_nodes}});
}

Result<std::filesystem::path> FindLlamaCpp(const std::string& given) {
  const char* const variable = std::getenv("PREPACK_LLAMA_CPP");
  std::filesystem::path folder = given;
  if (given.empty() && variable != nullptr) folder = variable;
  if (folder.empty()) {
    return Usage("--target gguf",
                 "it needs the sources of llama.cpp, whose converter knows the "
                 "names and metadata of every architecture")
        .Hint("--llama-cpp DIR names a checkout, or set PREPACK_LLAMA_CPP");
  }
  std::error_code error;
  folder = std::filesystem::canonical(folder, error);
  if (!error && std::filesystem::is_regular_file(folder / "convert_hf_to_gguf.py", error)) {
    return folder;
  }
  return Usage("--llama-cpp", "no sources of llama.cpp: there is no convert_hf_to_gguf.py")
      .Found(given.empty() ? folder.string() : given)
      .Hint("A checkout of llama.cpp has it in its top folder");
}

Result<std::filesystem::path> FindProgram(const std::string& given) {
  std::error_code error;
  if (std::filesystem::is_regular_file(given, error)) return std::filesystem::absolute(given);
  PREPACK_TRY_ASSIGN(const std::optional<PythonEnvironment> python, FindPython(given));
  if (python) return python->prefix / "bin" / "python3";
  return Unavailable("--python", "no Python was found")
      .Hint("Name one with --python that has torch and transformers");
}

using NotHeldModules = std::map<std::string, gguf::NotHeld, std::less<>>;

// Those that became floats, or those that were quantized.
Json NotHeldJson(const NotHeldModules& modules, bool quantized) {
  Json json = Json::object();
  for (const auto& [module, held] : modules) {
    if (quantized == (held.type == gguf::GgmlType::kQ8_0)) json[module] = held.why;
  }
  return json;
}

std::string NotHeldText(const NotHeldModules& modules) {
  std::map<std::pair<gguf::GgmlType, std::string>, size_t> reasons;
  for (const auto& [module, held] : modules) ++reasons[{held.type, held.why}];
  std::string text;
  for (const auto& [reason, count] : reasons) {
    const bool quantized = reason.first == gguf::GgmlType::kQ8_0;
    text += fmt::format("  {} {}: {}\n", Plural(count, "module"),
                        quantized ? "quantized to Q8_0" : "stored as floats", reason.second);
  }
  return text;
}

// `verified`: null if it was not verified.
Json ReportJson(const gguf::ConvertReport& report, const std::string& source,
                const VerifyReport* verified) {
  Json json = JsonDocument("prepack-convert-gguf");
  json["source"] = source;
  json["output"] = report.output.string();
  json["format"] = report.format;
  json["converter_class"] = report.converter_class;
  json["tokenizer"] = report.has_tokenizer;
  json["types"] = Json::object();
  for (const auto& [type, count] : report.types) {
    json["types"][type] = {{"tensors", count.tensors}, {"bytes", count.bytes}};
  }
  json["floats"] = NotHeldJson(report.not_held, /*quantized=*/false);
  json["quantized"] = NotHeldJson(report.not_held, /*quantized=*/true);
  json["rounded"] = Json::object();
  for (const auto& [name, rounded] : report.rounded)
    json["rounded"][name] = gguf::RoundedJson(rounded);
  json["left_out"] = report.left_out;
  json["source_bytes"] = report.source_bytes;
  json["output_bytes"] = report.output_bytes;
  json["files"] = report.files;
  json["was_done"] = report.was_done;
  json["resumed_units"] = report.resumed_units;
  json["verification"] = VerificationJson(verified);
  json["findings"] = FindingsJson(report.findings);
  return json;
}

std::string RoundedText(const std::map<std::string, gguf::Rounded>& tensors) {
  gguf::Rounded all;
  size_t count_quantized = 0;
  auto worst = tensors.end();
  for (auto it = tensors.begin(); it != tensors.end(); ++it) {
    all.Add(it->second);
    if (it->second.quantized == 0) continue;
    ++count_quantized;
    if (worst == tensors.end() || it->second.sqnr() < worst->second.sqnr()) worst = it;
  }
  std::string text;
  const auto add = [&](uint64_t count, std::string_view what) {
    if (count != 0) text += fmt::format("  rounded: {} {}\n", count, what);
  };
  add(all.scales, "scales of groups, to f16");
  add(all.minima,
      "minima of groups, to f16 (--exact stores these modules as Q5_0, without minima)");
  add(all.weights, "weights, to 16 bits (--exact stores them as F32)");
  if (all.quantized != 0) {
    text += fmt::format("  quantized: {} weights in {}, {:.1f} dB; at worst {:.1f} dB, {}\n",
                        all.quantized, Plural(count_quantized, "tensor"), all.sqnr(),
                        worst->second.sqnr(), Printable(worst->first));
  }
  return text.empty() ? "  nothing was rounded: all weights are those of the source\n" : text;
}

std::string ReportText(const gguf::ConvertReport& report) {
  if (report.was_done) return DoneAlreadyText(report.output.string());
  std::string text = fmt::format("{}: {} of {}\n", report.output.string(),
                                 Plural(report.types.size(), "type"), report.converter_class);
  for (const auto& [type, count] : report.types) {
    text += fmt::format("  {:>5} × {:<6} {:>10}\n", count.tensors, type, HumanBytes(count.bytes));
  }
  if (report.resumed_units != 0) {
    text += fmt::format("  {} were there from the interrupted run\n",
                        Plural(report.resumed_units, "tensor"));
  }
  text += NotHeldText(report.not_held) + RoundedText(report.rounded);
  text += fmt::format("  {} in, {} out in {}\n", HumanBytes(report.source_bytes),
                      HumanBytes(report.output_bytes), Plural(report.files, "file"));
  return text + FindingsText(report.findings);
}

std::string_view RowsFrom(const gguf::Plan& plan, const gguf::PlannedTensor& tensor) {
  if (tensor.rows.empty()) return tensor.scales.empty() ? "computed by the converter" : "scales";
  return plan.sources.sources[tensor.rows.front().source].name;
}

// What the rows are in the checkpoint: their scheme, or the dtype of a plain tensor.
std::string SchemeText(const gguf::Plan& plan, const gguf::PlannedTensor& tensor) {
  if (tensor.rows.empty()) return "";
  const gguf::Source& source = plan.sources.sources[tensor.rows.front().source];
  if (source.plain != nullptr) return std::string(DTypeName(source.plain->dtype));
  return DescribeScheme(source.modules.front()->scheme());
}

// Why a smaller type was not taken, if one has the codes.
std::string WhyLarger(const gguf::Plan& plan, const gguf::PlannedTensor& tensor) {
  if (tensor.rows.empty() || !gguf::HasCodes(tensor.type)) return "";
  const gguf::Source& source = plan.sources.sources[tensor.rows.front().source];
  return source.types.empty() ? "" : source.why;
}

std::string LargerText(const gguf::Plan& plan) {
  std::map<std::pair<gguf::GgmlType, std::string>, size_t> reasons;
  for (const gguf::PlannedTensor& tensor : plan.tensors) {
    const std::string why = WhyLarger(plan, tensor);
    if (!why.empty()) ++reasons[{tensor.type, why}];
  }
  std::string text;
  for (const auto& [reason, count] : reasons) {
    text += fmt::format("  {} × {} and nothing smaller: {}\n", count,
                        gguf::InfoOf(reason.first).name, reason.second);
  }
  return text;
}

std::string PlanText(const gguf::Plan& plan) {
  Table table({{"tensor"},
               {"type"},
               {"dimensions"},
               {"size", Align::kRight},
               {"from"},
               {"which is"},
               {"may be rounded"}});
  for (const gguf::PlannedTensor& tensor : plan.tensors) {
    const size_t pieces = tensor.rows.size();
    std::string from = Printable(RowsFrom(plan, tensor));
    if (pieces > 1) from += fmt::format(" and {} more", pieces - 1);
    table.AddRow({Printable(tensor.name), std::string(InfoOf(tensor.type).name),
                  ShapeText({tensor.dims.begin(), tensor.dims.size()}), HumanBytes(tensor.bytes()),
                  std::move(from), SchemeText(plan, tensor),
                  fmt::format("{}", fmt::join(tensor.rounds, ", "))});
  }
  return table.Render() + LargerText(plan) + NotHeldText(plan.sources.not_held) +
         fmt::format("\n{} for {}, {}{}\n", Plural(plan.tensors.size(), "tensor"),
                     plan.converter_class, HumanBytes(plan.tensor_bytes()),
                     plan.has_tokenizer ? "" : "; without a tokenizer");
}

Json PlanJson(const gguf::Plan& plan, const std::string& source) {
  Json json = JsonDocument("prepack-plan-gguf");
  json["source"] = source;
  json["converter_class"] = plan.converter_class;
  json["tokenizer"] = plan.has_tokenizer;
  json["floats"] = NotHeldJson(plan.sources.not_held, /*quantized=*/false);
  json["quantized"] = NotHeldJson(plan.sources.not_held, /*quantized=*/true);
  json["left_out"] = plan.sources.left_out;
  json["bytes"] = plan.tensor_bytes();
  json["tensors"] = Json::array();
  for (const gguf::PlannedTensor& tensor : plan.tensors) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"type", InfoOf(tensor.type).name},
                               {"dims", std::vector(tensor.dims.begin(), tensor.dims.end())},
                               {"bytes", tensor.bytes()},
                               {"origin", RowsFrom(plan, tensor)},
                               {"scheme", SchemeText(plan, tensor)},
                               {"pieces", tensor.rows.size()},
                               {"may_round", tensor.rounds}});
    if (std::string why = WhyLarger(plan, tensor); !why.empty()) {
      json["tensors"].back()["why"] = std::move(why);
    }
  }
  return json;
}

void NoteTokenizer(bool has_tokenizer, const CommonOptions& common) {
  if (has_tokenizer || common.quiet) return;
  PrintNote(
      "the file has no tokenizer (tokenizer.ggml.model is none): programs can only feed it "
      "numbers of tokens");
}

}  // namespace

Status RejectForGguf(const std::map<std::string_view, bool>& given) {
  for (const auto& [option, is_given] : given) {
    if (is_given) return Usage(option, "this option is not for --target gguf");
  }
  return {};
}

void GgufFlags::AddSourceTo(CLI::App& command) {
  command
      .add_option("--like", like,
                  "If the source is a GGUF file: a folder with config.json and tokenizer, such as "
                  "the Hugging Face model that it was made of")
      ->type_name("FOLDER");
  command
      .add_option("--llama-cpp", llama_cpp,
                  "If it was not made by prepack: the sources of llama.cpp, whose converter says "
                  "which tensor of the model each of the file is")
      ->type_name("DIR");
  command
      .add_option("--python", python,
                  "With --llama-cpp: Python, or the folder of an environment, that has what the "
                  "converter needs (default: the active one, or python3)")
      ->type_name("PYTHON");
}

Status GgufFlags::CheckForOthers() const {
  const std::map<std::string_view, bool> given = {{"--exact", exact},
                                                  {"--no-tokenizer", no_tokenizer},
                                                  {"--shard-size", shard_size != 0},
                                                  {"--trust-remote-code", trust_remote_code}};
  for (const auto& [option, is_given] : given) {
    if (is_given) return Usage(option, "this is for --target gguf only");
  }
  return {};
}

Result<GgufSource> GgufFlags::ToSource() const {
  GgufSource source;
  source.like = like;
  if (llama_cpp.empty()) return source;
  PREPACK_TRY_ASSIGN(source.llama_cpp, FindLlamaCpp(llama_cpp));
  PREPACK_TRY_ASSIGN(source.python, FindProgram(python));
  return source;
}

void GgufFlags::AddTo(CLI::App& command) {
  command
      .add_option("--like", like,
                  "If SRC is a GGUF file: a folder with config.json and tokenizer for the output, "
                  "such as the Hugging Face model that it was made of")
      ->type_name("FOLDER");
  command
      .add_option("--llama-cpp", llama_cpp,
                  "For gguf: a checkout or unpacked source of llama.cpp, whose converter says what "
                  "the file holds (default: PREPACK_LLAMA_CPP). For a SRC that is a GGUF file "
                  "which prepack has not made: the same, to know its tensors by")
      ->type_name("DIR");
  command
      .add_option("--python", python,
                  "For gguf: Python, or the folder of an environment, that has what llama.cpp's "
                  "converter needs (default: the active one, or python3)")
      ->type_name("PYTHON");
  command.add_flag("--exact", exact,
                   "For gguf: round nothing. Takes larger types where the usual one would round, "
                   "and fails where none is exact");
  command
      .add_option("--shard-size", shard_size,
                  "For gguf: split the model into files of about so many bytes of tensors, such as "
                  "4G, in the new folder OUT")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber)
      ->type_name("SIZE");
  command.add_flag("--no-tokenizer", no_tokenizer, "For gguf: make a file without a tokenizer");
  command.add_flag("--trust-remote-code", trust_remote_code,
                   "For gguf: let llama.cpp's converter run Python code that comes with the "
                   "checkpoint, as some tokenizers need it");
}

Result<gguf::PlanOptions> GgufFlags::ToOptions(const std::string& source,
                                               const PlanFlags& flags) const {
  PREPACK_TRY(CheckFlags(flags));
  gguf::PlanOptions options;
  options.source = source;
  PREPACK_TRY_ASSIGN(options.llama_cpp, FindLlamaCpp(llama_cpp));
  PREPACK_TRY_ASSIGN(options.python, FindProgram(python));
  options.exact = exact;
  if (flags.fallback == "dequantize") options.if_not_held = gguf::IfNotHeld::kFloats;
  if (flags.fallback == "q8_0") options.if_not_held = gguf::IfNotHeld::kQ8_0;
  if (exact && options.if_not_held == gguf::IfNotHeld::kQ8_0) {
    return Usage("--fallback q8_0", "it quantizes weights, and --exact changes none")
        .Hint("--fallback dequantize with --exact stores such modules as F32");
  }
  options.tokenizer = !no_tokenizer;
  options.trust_code = trust_remote_code;
  PREPACK_TRY_ASSIGN(options.accepted,
                     AcceptedFindings::Make(flags.accepted, AcceptedBy::kConversion, "--accept"));
  return options;
}

ExitCodeValue RunConvertGguf(gguf::ConvertOptions options, bool verify,
                             const CommonOptions& common) {
  VerifyOptions verify_options;
  verify_options.source = options.plan.source;
  verify_options.jobs = options.jobs;
  verify_options.memory_limit = options.memory_limit;
  ProgressDisplay display(common);
  GgufConversionCheck check(verify_options, display.progress());
  // Else it is verified when it is complete.
  if (verify && options.flow.consume) options.observer = &check;
  const Result<gguf::ConvertReport> report = gguf::Convert(options, display.progress());
  if (!report.ok()) {
    display.Stop();
    return Fail(report.status());
  }
  verify_options.folder = report->first_file;
  std::optional<Result<VerifyReport>> verified;
  if (verify) verified = check.Finish();
  display.Stop();
  NoteTokenizer(report->has_tokenizer, common);
  const VerifyReport* verdict = verified && verified->ok() ? &**verified : nullptr;
  if (common.json) {
    PrintJson(ReportJson(*report, options.plan.source.string(), verdict));
  } else if (!common.quiet) {
    Print(ReportText(*report));
  }
  if (!verified) return kExitDone;
  return verdict == nullptr ? Fail(verified->status()) : PrintVerdictOfConversion(*verdict, common);
}

ExitCodeValue RunPlanGguf(const gguf::PlanOptions& options, const CommonOptions& common) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(options.source);
  if (!checkpoint.ok()) return Fail(checkpoint.status());
  const Result<QuantizedModel> model = ReadSourceModel(*checkpoint, options.accepted);
  if (!model.ok()) return Fail(model.status());
  const Result<ScratchFolder> scratch = ScratchFolder::Create();
  if (!scratch.ok()) return Fail(scratch.status());
  const Result<gguf::Plan> plan = gguf::MakePlan(*checkpoint, *model, options, scratch->path());
  if (!plan.ok()) return Fail(plan.status());
  NoteTokenizer(plan->has_tokenizer, common);
  if (common.json) {
    PrintJson(PlanJson(*plan, options.source.string()));
  } else if (!common.quiet) {
    Print(PlanText(*plan) + FindingsText(model->findings));
  }
  return kExitDone;
}

}  // namespace prepack::cli
