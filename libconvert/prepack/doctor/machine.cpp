#include "prepack/doctor/machine.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <string_view>
#include <utility>

#include "prepack/base/text.h"

namespace prepack {
namespace {

namespace fs = std::filesystem;

// The first line of a file; empty when there is none.
std::string LineOf(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return std::string(Trimmed(line));
}

// "NAME : VALUE"
std::pair<std::string, std::string> FieldOf(std::string_view line) {
  const size_t colon = std::min(line.find(':'), line.size());
  return {std::string(Trimmed(line.substr(0, colon))),
          std::string(Trimmed(line.substr(std::min(colon + 1, line.size()))))};
}

struct ArmCore {
  std::string_view part;  // of implementer 0x41, which is Arm
  std::string_view name;
};

constexpr std::array kArmCores = {
    ArmCore{"0xd0c", "Neoverse N1"},
    ArmCore{"0xd40", "Neoverse V1"},
    ArmCore{"0xd49", "Neoverse N2"},
    ArmCore{"0xd4f", "Neoverse V2"},
};

// Files for Arm name no model, but who made the CPU and which part it is.
std::string ArmCpuName(const std::string& implementer, const std::string& part) {
  if (implementer.empty()) return "";
  const auto* core = std::ranges::find(kArmCores, std::string_view(part), &ArmCore::part);
  if (implementer == "0x41" && core != kArmCores.end()) return "Arm " + std::string(core->name);
  return "Arm, implementer " + implementer + ", part " + part;
}

void ReadCpus(const fs::path& path, Machine& machine) {
  std::ifstream in(path);
  std::string flags;
  std::string vendor;
  std::string implementer;
  std::string part;
  std::string package;
  std::set<std::pair<std::string, std::string>> cores;
  for (std::string line; std::getline(in, line);) {
    const auto [name, value] = FieldOf(line);
    if (name == "processor") ++machine.cpus;
    if (name == "model name" && machine.cpu.empty()) machine.cpu = value;
    if (name == "vendor_id" && vendor.empty()) vendor = value;
    if ((name == "flags" || name == "Features") && flags.empty()) flags = value;
    if (name == "CPU implementer") implementer = value;
    if (name == "CPU part") part = value;
    if (name == "physical id") package = value;
    if (name == "core id") cores.insert({package, value});
  }
  if (machine.cpu.empty()) machine.cpu = ArmCpuName(implementer, part);
  machine.features = CpuFeaturesOf(flags, vendor);
  machine.cores = cores.empty() ? machine.cpus : cores.size();
}

// "1024K", "32M".
uint64_t SizeOf(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned shift = text.back() == 'K' ? 10 : text.back() == 'M' ? 20 : 0;
  if (shift != 0) text.remove_suffix(1);
  const std::optional<uint64_t> number = ParseUint(text);
  return number && *number < (uint64_t{1} << 40) ? *number << shift : 0;
}

void ReadCaches(const fs::path& folder, Machine& machine) {
  for (int index = 0;; ++index) {
    const fs::path cache = folder / ("index" + std::to_string(index));
    const std::string level = LineOf(cache / "level");
    if (level.empty()) return;
    if (LineOf(cache / "type") == "Instruction") continue;
    const uint64_t bytes = SizeOf(LineOf(cache / "size"));
    if (level == "2") machine.l2_bytes = bytes;
    if (level == "3") machine.l3_bytes = bytes;
  }
}

void ReadMemory(const fs::path& path, Machine& machine) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const auto [name, value] = FieldOf(line);
    const uint64_t bytes = ParseUint(value.substr(0, value.find(' '))).value_or(0) << 10;
    if (name == "MemTotal") machine.memory_bytes = bytes;
    if (name == "MemAvailable") machine.available_bytes = bytes;
  }
}

uint64_t CountNodes(const fs::path& folder) {
  uint64_t nodes = 0;
  std::error_code error;
  while (fs::is_directory(folder / ("node" + std::to_string(nodes)), error)) ++nodes;
  return std::max<uint64_t>(nodes, 1);
}

#if defined(__x86_64__)

// Kernels that are older than the CPU have no word for it.
bool CpuHasAmxFp8() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kTileLeaf = 0x1E;
  constexpr unsigned kFp8Bit = 4;
  return __get_cpuid_count(kTileLeaf, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         ((eax >> kFp8Bit) & 1U) != 0;
}

void AddFeaturesOfProcess(CpuFeatures& features) {
  if (features.Has(CpuFeature::kAmxInt8) && CpuHasAmxFp8()) features.Add(CpuFeature::kAmxFp8);
}

#elif defined(__aarch64__)

struct HardwareBit {
  unsigned long vector;  // of the auxiliary vector
  unsigned bit;          // asm/hwcap.h; headers may be older than the CPU
  CpuFeature feature;
};

constexpr std::array kHardwareBits = {
    HardwareBit{AT_HWCAP, 20, CpuFeature::kDotprod},
    HardwareBit{AT_HWCAP, 22, CpuFeature::kSve},
    HardwareBit{AT_HWCAP2, 13, CpuFeature::kI8mm},
    HardwareBit{AT_HWCAP2, 14, CpuFeature::kArmBf16},
    HardwareBit{AT_HWCAP2, 23, CpuFeature::kSme},
};

// What the system tells the process counts: the file may be that of another machine, on which this
// one is emulated.
void AddFeaturesOfProcess(CpuFeatures& features) {
  features = {};
  for (const HardwareBit& row : kHardwareBits) {
    if ((getauxval(row.vector) >> row.bit & 1U) != 0) features.Add(row.feature);
  }
}

#else

void AddFeaturesOfProcess(CpuFeatures& /*features*/) {}

#endif

}  // namespace

Machine ReadMachine(const fs::path& root) {
  Machine machine;
  ReadCpus(root / "proc/cpuinfo", machine);
  ReadCaches(root / "sys/devices/system/cpu/cpu0/cache", machine);
  ReadMemory(root / "proc/meminfo", machine);
  machine.numa_nodes = CountNodes(root / "sys/devices/system/node");
  // Of the second and the first version of control groups; "max" is no limit, nor is a number
  // above what the machine has.
  for (const char* file :
       {"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const uint64_t limit = ParseUint(LineOf(root / file)).value_or(0);
    if (limit != 0 && limit < machine.memory_bytes) machine.limit_bytes = limit;
  }
  if (root == "/") AddFeaturesOfProcess(machine.features);
  return machine;
}

}  // namespace prepack
