// Loads the module with the oneDNN engine from the program's own folder.

#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "gemm/engine.h"
#include "gemm/onednn_module.h"

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
}
#endif

namespace prepack {
namespace {

// How preprocessor names become strings.
#define PREPACK_QUOTE_(name) #name
#define PREPACK_QUOTE(name) PREPACK_QUOTE_(name)

using EntryPoint = decltype(&PREPACK_ONEDNN_ENTRY);

Status CannotLoad(const std::filesystem::path& module) {
  const char* const reason = dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in glibc
  return Unavailable(module.string(), "the module with the oneDNN engine cannot be loaded")
      .Found(reason == nullptr ? "no reason given" : reason)
      .Hint(
          "Keep it beside the program, run tools/setup and build again, or choose --engine "
          "reference");
}

}  // namespace

Result<std::unique_ptr<GemmEngine>> MakeOneDnnEngine() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path module = program.parent_path() / PREPACK_ONEDNN_MODULE;
  void* const handle = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return CannotLoad(module);
  const auto entry =
      reinterpret_cast<EntryPoint>(dlsym(handle, PREPACK_QUOTE(PREPACK_ONEDNN_ENTRY)));
  if (entry == nullptr) return CannotLoad(module);
  Result<std::unique_ptr<GemmEngine>> engine = Unavailable("oneDNN", "no engine was made");
  entry(engine);
  return engine;
}

}  // namespace prepack
