#include "onednn_here.h"

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

dnnl::engine MakeEngine() {
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&dnnl_version), &library) != 0) {
    const auto driver = std::filesystem::path(library.dli_fname).parent_path() / "libintelocl.so";
    if (std::filesystem::exists(driver)) setenv("OCL_ICD_FILENAMES", driver.c_str(), 0);
  }
  return {dnnl::engine::kind::cpu, 0};
}

std::string OneDnnVersion() {
  const dnnl_version_t& version = *dnnl_version();
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

std::string OneDnnIsa() {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%x",
                static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
  return text.data();
}

bool SumsInt8Exactly() {
  const auto has = [](dnnl::cpu_isa isa) {
    const auto wanted = static_cast<unsigned>(isa);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
  };
  return has(dnnl::cpu_isa::avx2_vnni) || has(dnnl::cpu_isa::avx512_core_vnni);
}
