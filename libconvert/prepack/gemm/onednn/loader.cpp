// Loads the module with oneDNN from beside the program.

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "prepack/gemm/engine.h"
#include "prepack/gemm/onednn/descriptor.h"
#include "prepack/gemm/onednn/engine.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PREPACK_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define PREPACK_ADDRESS_SANITIZER
#endif

#ifdef PREPACK_ADDRESS_SANITIZER
// The SYCL and OpenCL runtimes keep their global objects until the process ends. Here, because
// every program that makes an engine links this file, tests and tool alike.
extern "C" {
const char* __lsan_default_suppressions() {
  return "leak:libsycl.so\nleak:libOpenCL.so\nleak:libintelocl.so\n";
}
const char* __lsan_default_options() {
  return "print_suppressions=0";
}
// The OpenCL runtime gives threads of ours a stack for signals, which is not the sanitizer's to
// free.
const char* __asan_default_options() {
  return "use_sigaltstack=0";
}
}
#endif

namespace prepack {
namespace {

// How preprocessor names become strings.
#define PREPACK_QUOTE_(name) #name
#define PREPACK_QUOTE(name) PREPACK_QUOTE_(name)

Status CannotLoad(const std::filesystem::path& module, std::string_view otherwise) {
  const char* const reason = dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in glibc
  return Unavailable(module.string(), "the module that calls oneDNN cannot be loaded")
      .Found(reason == nullptr ? "no reason given" : reason)
      .Hint(fmt::format("Keep the module where it was built or installed, and put oneDNN's "
                        "libraries or a link to their folder at {}; or choose {}",
                        (module.parent_path() / "onednn").string(), otherwise));
}

// In the program's own folder: there the build puts it. Else where it is installed, which is said
// relative to the program, so that a whole installation can be moved.
std::filesystem::path ModuleFile() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::filesystem::path beside = program.parent_path() / PREPACK_ONEDNN_MODULE;
  if (std::filesystem::exists(beside, error)) return beside;
  std::filesystem::path installed =
      (program.parent_path() / PREPACK_MODULE_FOLDER / PREPACK_ONEDNN_MODULE).lexically_normal();
  return std::filesystem::exists(installed, error) ? installed : beside;
}

// A function of the module. `otherwise` is what the user can choose when there is none.
Result<void*> Entry(const char* name, std::string_view otherwise) {
  const std::filesystem::path module = ModuleFile();
  void* const handle = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return CannotLoad(module, otherwise);
  void* const entry = dlsym(handle, name);
  if (entry == nullptr) return CannotLoad(module, otherwise);
  return entry;
}

}  // namespace

Result<std::unique_ptr<GemmEngine>> MakeOneDnnEngine() {
  const Result<void*> entry =
      Entry(PREPACK_QUOTE(PREPACK_ONEDNN_ENGINE_ENTRY), "--engine reference");
  if (!entry.ok()) return entry.status();
  Result<std::unique_ptr<GemmEngine>> engine = Unavailable("oneDNN", "no engine was made");
  reinterpret_cast<decltype(&PREPACK_ONEDNN_ENGINE_ENTRY)> (*entry)(engine);
  return engine;
}

Result<OneDnnAnswer> AskOneDnn(const PackRequest& request) {
  const Result<void*> entry =
      Entry(PREPACK_QUOTE(PREPACK_ONEDNN_DESCRIPTOR_ENTRY), "--onednn-form blocked or plain");
  if (!entry.ok()) return entry.status();
  Result<OneDnnAnswer> answer = Unavailable("oneDNN", "it gave no answer");
  reinterpret_cast<decltype(&PREPACK_ONEDNN_DESCRIPTOR_ENTRY)> (*entry)(request, answer);
  return answer;
}

}  // namespace prepack
