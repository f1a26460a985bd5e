#include "gemm/onednn_runtime.h"

#include <dlfcn.h>
#include <dnnl.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>

namespace prepack {
namespace {

// The driver that lies beside the oneDNN that this process has loaded; empty when there is none,
// as with a oneDNN of the system, which needs none.
std::filesystem::path DriverBesideOneDnn() {
  Dl_info info{};
  const auto* const symbol = reinterpret_cast<const void*>(&dnnl_version);
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  const std::filesystem::path driver =
      std::filesystem::absolute(info.dli_fname, ignored).parent_path() / "libintelocl.so";
  return std::filesystem::exists(driver, ignored) ? driver : std::filesystem::path();
}

}  // namespace

void PrepareOneDnnRuntime() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::filesystem::path driver = DriverBesideOneDnn();
    if (driver.empty()) return;
    // The value stays for the life of the process; other threads must not read the environment
    // while the first engine is made.
    setenv("OCL_ICD_FILENAMES", driver.c_str(), 0);  // NOLINT(concurrency-mt-unsafe)
  });
}

}  // namespace prepack
