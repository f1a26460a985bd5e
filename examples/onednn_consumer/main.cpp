// Runs the linear layers of a packed folder with oneDNN, on the weights as they lie in the mapped
// files: no copy, no reorder. README.md tells the story.
//
//     onednn_consumer FOLDER [MODULE]

#include <cstdio>
#include <exception>
#include <string>

#include "matmul_description.h"
#include "measurement.h"
#include "onednn_here.h"
#include "packed_folder.h"
#include "refusal.h"
#include "suitability.h"

namespace {

constexpr double kLeastKernelDb = 48;  // rounding to bf16 leaves 50 and more
constexpr double kLeastEndToEndDb =
    20;  // as quantized inputs leave; a wrong order of them leaves 0

// Names come from files: nothing in them may move the cursor of a terminal.
std::string Printable(std::string text) {
  for (char& c : text) c = static_cast<unsigned char>(c) < ' ' || c == '\x7F' ? '?' : c;
  return text;
}

void Print(const Module& module, const MatmulDescription& matmul, const Measurement& result) {
  std::printf("%s: %s, [%llu, %llu], %s\n", Printable(module.name).c_str(), module.layout.c_str(),
              static_cast<unsigned long long>(module.n), static_cast<unsigned long long>(module.k),
              matmul.primitive.impl_info_str());
  std::printf("  first result %.2f ms on the mapped file, %.2f ms with a reorder at load (%s)\n",
              result.mapped_ms, result.reordered_ms,
              result.same_bytes ? "to the same bytes" : "to OTHER bytes");
  std::printf("  SQNR %.1f dB against the same rounded inputs, %.1f dB end to end\n",
              result.kernel_db, result.end_to_end_db);
}

void RunModule(const dnnl::engine& engine, const PackedFolder& folder, const Module& module) {
  CheckOrigin(folder, module);
  const MatmulDescription matmul = DescribeMatmul(engine, module, folder.activation_dtype, kRows);
  CheckForm(folder, module, matmul);
  const Measurement result = Measure(engine, folder, module, matmul);
  Print(module, matmul, result);
  if (result.same_bytes && result.kernel_db >= kLeastKernelDb &&
      result.end_to_end_db >= kLeastEndToEndDb) {
    return;
  }
  if (!module.Is4Bit() && !SumsInt8Exactly()) {
    throw Refusal(Exit::kUnavailable, "module " + module.name +
                                          ": this CPU has no VNNI, and oneDNN sums int8 products "
                                          "in 16 bits here, which are too few for these weights");
  }
  throw Refusal(Exit::kWrongResult, "module " + module.name + ": the result is wrong");
}

void RunFolder(const std::string& path, const std::string& only) {
  const PackedFolder folder = OpenPackedFolder(path);
  const dnnl::engine engine = MakeEngine();
  std::printf("oneDNN %s, ISA %s\n", OneDnnVersion().c_str(), OneDnnIsa().c_str());
  bool found = false;
  for (const Module& module : folder.modules) {
    if (!only.empty() && module.name != only) continue;
    found = true;
    RunModule(engine, folder, module);
  }
  if (!found) throw Refusal(Exit::kUsage, path + ": no such packed module: " + only);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: onednn_consumer FOLDER [MODULE]\n");
    return static_cast<int>(Exit::kUsage);
  }
  try {
    RunFolder(argv[1], argc == 3 ? argv[2] : "");
    return static_cast<int>(Exit::kGood);
  } catch (const Refusal& refusal) {
    std::fprintf(stderr, "error: %s\n", Printable(refusal.what()).c_str());
    return static_cast<int>(refusal.code());
  } catch (const dnnl::error& error) {
    std::fprintf(stderr, "error: oneDNN: %s\n", error.what());
    return static_cast<int>(Exit::kUnavailable);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(Exit::kSystem);
  }
}
