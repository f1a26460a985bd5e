// The ops of vLLM and zentorch, in a child that has them: python -m prepack_vllm.measure. A line is
// a question or an answer:
//
//     {"do": "hello", "protocol": 2, "threads": 2}
//       {"ok": true, "name": "vllm 0.32.0, torch 2.13.0"}
//     {"do": "prepare", "folder": …, "module": …, "rows": 8, "cold_bytes": 67108864}
//       {"ok": true, "kernel": 1, "implementation": "_C::cpu_gemm_wna16"}
//     {"do": "prepare_experts", "folder": …, "mixture": …, "experts": 128, "top_k": 8, "rows": 8,
//      "cold_bytes": 67108864}
//       the same
//     {"do": "time", "kernel": 1}
//       {"ok": true, "seconds": 0.0012}
//     {"do": "forget", "kernel": 1}
//       {"ok": true}
//
// An answer with "ok": false has a "message": the op's own error, or what is missing.

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "prepack/container/json_child.h"
#include "prepack/container/json_fields.h"
#include "prepack/tune/runtime.h"

namespace prepack {
namespace {

constexpr int kProtocol = 2;
// vLLM takes half a minute to load on a slow disk.
constexpr double kSecondsToLoad = 300;
constexpr double kSecondsToAnswer = 120;

constexpr std::string_view kNotTheProtocol = "its answer is not that of prepack_vllm.measure";

std::optional<std::string> TextOf(const Json& answer, std::string_view key) {
  const Json* value = JsonMember(answer, key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

// A child and what it is called in messages.
class Conversation {
 public:
  Conversation(Child child, std::string program)
      : child_(std::move(child)), program_(std::move(program)) {}

  // kUnavailable with the message of an answer that is not "ok".
  Result<Json> Ask(const Json& question, double seconds = kSecondsToAnswer) {
    PREPACK_TRY_ASSIGN(Json answer, child_.Ask(question, seconds));
    const Json* ok = JsonMember(answer, "ok");
    if (ok == nullptr || !ok->is_boolean()) return WrongAnswer(answer);
    if (ok->get<bool>()) return answer;
    const std::optional<std::string> message = TextOf(answer, "message");
    if (!message) return WrongAnswer(answer);
    return Unavailable(program_, Printable(*message, 1000));
  }

  Status WrongAnswer(const Json& answer) const {
    return Malformed(program_, kNotTheProtocol)
        .Found(Printable(answer.dump(-1, ' ', false, Json::error_handler_t::replace)))
        .Hint("Install the plug-in of the same version as prepack");
  }

 private:
  Child child_;
  std::string program_;
};

class PythonKernel final : public PreparedKernel {
 public:
  PythonKernel(Conversation& conversation, Json number, std::string implementation)
      : conversation_(conversation),
        number_(std::move(number)),
        implementation_(std::move(implementation)) {}
  ~PythonKernel() override {
    static_cast<void>(conversation_.Ask({{"do", "forget"}, {"kernel", number_}}));
  }

  const std::string& implementation() const override { return implementation_; }
  bool is_reference() const override { return false; }

  Result<double> Time() override {
    PREPACK_TRY_ASSIGN(const Json answer, conversation_.Ask({{"do", "time"}, {"kernel", number_}}));
    const Json* seconds = JsonMember(answer, "seconds");
    if (seconds == nullptr || !seconds->is_number()) return conversation_.WrongAnswer(answer);
    const auto value = seconds->get<double>();
    if (!std::isfinite(value) || value <= 0) return conversation_.WrongAnswer(answer);
    return value;
  }

 private:
  Conversation& conversation_;
  const Json number_;
  const std::string implementation_;
};

class PythonRuntime final : public KernelRuntime {
 public:
  PythonRuntime(Conversation conversation, std::string name)
      : conversation_(std::move(conversation)), name_(std::move(name)) {}

  std::string name() const override { return name_; }

  Result<std::unique_ptr<PreparedKernel>> Prepare(const PackedModule& module, uint64_t rows,
                                                  uint64_t cold_bytes) override {
    return Ask({{"do", "prepare"},
                {"folder", module.folder().string()},
                {"module", module.name()},
                {"rows", rows},
                {"cold_bytes", cold_bytes}});
  }

  Result<std::unique_ptr<PreparedKernel>> PrepareExperts(const PackedModule& one,
                                                         const ExpertsInOneOp& mixture,
                                                         uint64_t rows,
                                                         uint64_t cold_bytes) override {
    return Ask({{"do", "prepare_experts"},
                {"folder", one.folder().string()},
                {"mixture", mixture.mixture},
                {"experts", mixture.experts},
                {"top_k", mixture.top_k},
                {"rows", rows},
                {"cold_bytes", cold_bytes}});
  }

 private:
  Result<std::unique_ptr<PreparedKernel>> Ask(const Json& question) {
    PREPACK_TRY_ASSIGN(const Json answer, conversation_.Ask(question));
    const Json* number = JsonMember(answer, "kernel");
    const std::optional<std::string> implementation = TextOf(answer, "implementation");
    if (number == nullptr || !number->is_number_unsigned() || !implementation) {
      return conversation_.WrongAnswer(answer);
    }
    return std::unique_ptr<PreparedKernel>(
        std::make_unique<PythonKernel>(conversation_, *number, Printable(*implementation)));
  }

  Conversation conversation_;
  const std::string name_;
};

}  // namespace

Result<std::unique_ptr<KernelRuntime>> StartPythonRuntime(const std::filesystem::path& python,
                                                          unsigned threads) {
  const std::string count = fmt::format("{}", threads);
  // Threads stay on the CPUs that this process was pinned to, each on one of its own.
  PREPACK_TRY_ASSIGN(
      Child child,
      Child::Start({.arguments = {python.string(), "-m", "prepack_vllm.measure"},
                    .environment = {{"OMP_NUM_THREADS", count}, {"OMP_PROC_BIND", "true"}}}));
  Conversation conversation(std::move(child), python.string());
  PREPACK_TRY_ASSIGN(
      const Json answer,
      conversation.Ask({{"do", "hello"}, {"protocol", kProtocol}, {"threads", threads}},
                       kSecondsToLoad));
  const std::optional<std::string> name = TextOf(answer, "name");
  if (!name) return conversation.WrongAnswer(answer);
  return std::unique_ptr<KernelRuntime>(
      std::make_unique<PythonRuntime>(std::move(conversation), Printable(*name)));
}

}  // namespace prepack
