#include "prepack/doctor/doctor.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "catch.h"
#include "prepack/layouts/table.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

void PutText(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

constexpr std::string_view kAvx512Flags =
    "fpu avx2 fma avx512f avx512bw avx512dq avx512vl avx512_vnni";

TEST_CASE("a feature needs all of its flags") {
  const CpuFeatures features = CpuFeaturesOf(kAvx512Flags, "GenuineIntel");
  CHECK(features == CpuFeatures{CpuFeature::kAvx2, CpuFeature::kAvx512, CpuFeature::kVnni});
  CHECK_FALSE(CpuFeaturesOf("avx512f avx512bw avx512dq", "").Has(CpuFeature::kAvx512));
  CHECK(CpuFeaturesOf("amx_int8", "").empty());
  CHECK(CpuFeaturesOf("amx_tile amx_int8", "AuthenticAMD") ==
        CpuFeatures{CpuFeature::kAmxInt8, CpuFeature::kAmd});
  CHECK(CpuFeaturesText(features) == "AVX2, AVX-512, VNNI");
  CHECK(CpuFeaturesText({}) == "nothing");
}

TEST_CASE("features of Arm CPUs come from their own line") {
  CHECK(
      CpuFeaturesOf("fp asimd evtstrm asimdhp asimddp sve i8mm bf16", "") ==
      CpuFeatures{CpuFeature::kDotprod, CpuFeature::kSve, CpuFeature::kI8mm, CpuFeature::kArmBf16});
  CHECK(CpuFeaturesOf("fp asimd", "").empty());
  CHECK(CpuFeaturesText({CpuFeature::kDotprod, CpuFeature::kSme}) == "DOTPROD, SME");
}

TEST_CASE("what kernels need is in words what it is in symbols") {
  for (const Layout& layout : AllLayouts()) {
    CAPTURE(layout.id);
    const CpuFeatures named = layout.needs;
    for (const CpuFeatureName& row : AllCpuFeatures()) {
      if (!named.Has(row.feature) && !layout.wants.Has(row.feature)) continue;
      const std::string_view word = row.feature == CpuFeature::kAmd ? "AMD" : row.name;
      CAPTURE(word);
      CHECK(layout.isa.find(word) != std::string_view::npos);
    }
    if (layout.isa == "any") CHECK((layout.needs.empty() && layout.wants.empty()));
    if (layout.isa.starts_with("AVX-512")) CHECK(layout.needs.Has(CpuFeature::kAvx512));
    if (layout.isa.starts_with("AMD")) CHECK(layout.needs.Has(CpuFeature::kAmd));
    CHECK(layout.excludes.empty() == (layout.isa.find("without AMX") == std::string_view::npos));
  }
}

TEST_CASE("consumers are of the version that the layouts mirror") {
  for (const Layout& layout : AllLayouts()) {
    for (const Consumer& consumer : AllConsumers()) {
      if (consumer.made_for.empty() ||
          !layout.mirrors.starts_with(fmt::format("{} ", consumer.name))) {
        continue;
      }
      CAPTURE(layout.id, consumer.id);
      CHECK(layout.mirrors.starts_with(fmt::format("{} {}", consumer.name, consumer.made_for)));
    }
  }
}

const Layout& LayoutNamed(std::string_view id) {
  const Layout* layout = FindLayout(id);
  REQUIRE(layout != nullptr);
  return *layout;
}

TEST_CASE("layouts fit the CPUs that run them") {
  using enum CpuFeature;
  const CpuFeatures old_server = {kAvx2, kAvx512, kVnni};
  const CpuFeatures zen4 = {kAvx2, kAvx512, kVnni, kBf16, kVbmi, kAmd};
  const CpuFeatures amx = {kAvx2, kAvx512, kVnni, kBf16, kAmxInt8, kAmxBf16};
  const CpuFeatures laptop = {kAvx2, kAvxVnni};
  const auto fit = [](std::string_view id, const CpuFeatures& features) {
    return FitOf(LayoutNamed(id), features);
  };
  CHECK(fit("vllm-cpu/wna16", zen4).fit == CpuFit::kRuns);
  CHECK(fit("vllm-cpu/wna16", old_server).fit == CpuFit::kRunsWorse);
  CHECK(fit("vllm-cpu/wna16", old_server).why == "wants BF16");
  CHECK(fit("vllm-cpu/wna16", laptop).fit == CpuFit::kNot);
  CHECK(fit("vllm-cpu/wna16", laptop).why == "needs AVX-512");
  CHECK(fit("vllm-cpu/fp8-vnni", old_server).why == "needs BF16");
  CHECK(fit("zentorch/woq", zen4).fit == CpuFit::kRuns);
  CHECK(fit("zentorch/woq", amx).why == "needs a CPU by AMD");
  CHECK(fit("onednn/w8a8", zen4).fit == CpuFit::kRuns);
  CHECK(fit("onednn/w8a8", amx).why == "is for CPUs without AMX-INT8");
  CHECK(fit("onednn/w4a16", laptop).fit == CpuFit::kRunsWorse);
  // The VNNI of AVX is enough where AVX-512 is not needed.
  CHECK(fit("vllm-cpu/int8-plain", laptop).fit == CpuFit::kRuns);
  CHECK(fit("vllm-cpu/int8-plain", {kAvx2}).why == "needs VNNI");
  CHECK(fit("vllm-cpu/int8-vnni", laptop).fit == CpuFit::kNot);
  CHECK(fit("plain/bf16", {}).fit == CpuFit::kRuns);
}

TEST_CASE("a machine is read from the files of the system") {
  const TempFolder temp;
  std::string cpus;
  for (int cpu = 0; cpu < 8; ++cpu) {
    cpus += fmt::format(
        "processor\t: {}\nvendor_id\t: GenuineIntel\nmodel name\t: Some CPU\nphysical id\t: {}\n"
        "core id\t\t: {}\nflags\t\t: {} amx_tile amx_int8\n\n",
        cpu, cpu / 4, cpu % 2, kAvx512Flags);
  }
  PutText(temp / "proc/cpuinfo", cpus);
  PutText(temp / "proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n");
  const fs::path caches = "sys/devices/system/cpu/cpu0/cache";
  PutText(temp / caches / "index0/level", "1\n");
  PutText(temp / caches / "index0/size", "48K\n");
  PutText(temp / caches / "index1/level", "2\n");
  PutText(temp / caches / "index1/size", "2048K\n");
  PutText(temp / caches / "index2/level", "3\n");
  PutText(temp / caches / "index2/size", "105M\n");
  PutText(temp / "sys/devices/system/node/node0/cpulist", "0-3\n");
  PutText(temp / "sys/devices/system/node/node1/cpulist", "4-7\n");
  PutText(temp / "sys/fs/cgroup/memory.max", "max\n");
  Machine machine = ReadMachine(temp.path());
  CHECK(machine.cpu == "Some CPU");
  CHECK(machine.cpus == 8);
  CHECK(machine.cores == 4);
  CHECK(machine.numa_nodes == 2);
  CHECK(machine.l2_bytes == 2048 << 10);
  CHECK(machine.l3_bytes == 105 << 20);
  CHECK(machine.memory_bytes == uint64_t{16} << 30);
  CHECK(machine.available_bytes == uint64_t{8} << 30);
  CHECK(machine.limit_bytes == 0);
  CHECK(machine.UsableMemory() == machine.memory_bytes);
  CHECK(machine.features == CpuFeatures{CpuFeature::kAvx2, CpuFeature::kAvx512, CpuFeature::kVnni,
                                        CpuFeature::kAmxInt8});
  PutText(temp / "sys/fs/cgroup/memory.max", "1073741824\n");
  machine = ReadMachine(temp.path());
  CHECK(machine.limit_bytes == uint64_t{1} << 30);
  CHECK(machine.UsableMemory() == uint64_t{1} << 30);
}

TEST_CASE("an Arm machine is named by who made its cores") {
  const TempFolder temp;
  const auto read = [&](std::string_view implementer, std::string_view part) {
    PutText(temp / "proc/cpuinfo", fmt::format("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n"
                                               "CPU implementer\t: {}\nCPU part\t: {}\n\n",
                                               implementer, part));
    return ReadMachine(temp.path());
  };
  const Machine machine = read("0x41", "0xd4f");
  CHECK(machine.cpu == "Arm Neoverse V2");
  CHECK(machine.features == CpuFeatures{CpuFeature::kDotprod, CpuFeature::kI8mm});
  CHECK(machine.cores == 1);
  CHECK(read("0x41", "0xfff").cpu == "Arm, implementer 0x41, part 0xfff");
  CHECK(read("0x51", "0xd4f").cpu == "Arm, implementer 0x51, part 0xd4f");
}

TEST_CASE("nothing is known of a machine without these files") {
  const TempFolder temp;
  PutText(temp / "proc/cpuinfo", "\x01\xff: :\n:::\nflags\n");
  PutText(temp / "proc/meminfo", "MemTotal: lots\nMemAvailable: 99999999999999999999 kB\n");
  PutText(temp / "sys/devices/system/cpu/cpu0/cache/index0/level", "3\n");
  PutText(temp / "sys/devices/system/cpu/cpu0/cache/index0/size", "99999999999999999999M\n");
  const Machine machine = ReadMachine(temp.path());
  CHECK(machine.cpu.empty());
  CHECK(machine.features.empty());
  CHECK(machine.cpus == 0);
  CHECK(machine.numa_nodes == 1);
  CHECK(machine.l3_bytes == 0);
  CHECK(machine.memory_bytes == 0);
}

TEST_CASE("a folder is judged by the CPU and the memory of the machine") {
  const TempFolder temp;
  PutText(temp / "proc/cpuinfo", "processor : 0\nflags : avx2 fma\n");
  PutText(temp / "proc/meminfo", "MemTotal: 1024 kB\n");
  fs::create_directories(temp / "venv/bin");
  PutText(temp / "venv/bin/python3", "");
  DoctorOptions options{.folders = {Fixture("checkpoints/ct-fp8-block")},
                        .python = temp / "venv",
                        .root = temp.path()};
  const Result<DoctorReport> report = Diagnose(options);
  REQUIRE(report.ok());
  const FolderReport& folder = report->folders.at(0);
  CHECK(folder.HasProblem());
  CHECK(folder.targets.at(0).target == "vllm-cpu");
  CHECK_FALSE(folder.targets.at(0).runs);
  CHECK(folder.targets.at(0).layouts.at(0).fit.why == "needs AVX-512, BF16");
  std::vector<std::string_view> ids;
  for (const DoctorFinding& finding : folder.findings) ids.push_back(finding.id);
  CHECK(ids == std::vector<std::string_view>{"memory-too-small", "no-target"});
  CHECK(folder.findings.back().todo ==
        "`prepack plan SRC --target TARGET` says why; --scheme bf16 makes weights that run on "
        "every CPU");
}

TEST_CASE("packages have the names by which PyPI compares them") {
  CHECK(NormalPackageName("Kt_Kernel") == "kt-kernel");
  CHECK(NormalPackageName("a._-B") == "a-b");
}

}  // namespace
}  // namespace prepack::testing
