// Runs the linear layers of a packed folder with oneDNN. The primitives read the weights in the
// mapped files: the program neither copies nor reorders them. README.md explains the steps.
//
//     onednn_consumer FOLDER [MODULE]

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "matmul.h"
#include "measure.h"
#include "operands.h"
#include "packed_folder.h"
#include "refusal.h"

namespace {

constexpr dnnl::memory::dim kRows = 4;   // of random inputs
constexpr double kLeastKernelDb = 48;    // rounding the result to bf16 leaves 50 or more
constexpr double kLeastEndToEndDb = 20;  // quantized inputs leave 20 or more, misordered ones 0

// Replaces control characters: names come from files and must not move the terminal's cursor.
std::string Printable(std::string text) {
  for (char& c : text) c = static_cast<unsigned char>(c) < ' ' || c == '\x7F' ? '?' : c;
  return text;
}

void Print(const Module& module, const Matmul& matmul, const Times& times,
           const Accuracy& accuracy) {
  std::printf("%s: %s, [%llu, %llu], %s\n", Printable(module.name).c_str(), module.layout.c_str(),
              static_cast<unsigned long long>(module.n), static_cast<unsigned long long>(module.k),
              matmul.primitive.impl_info_str());
  std::printf("  first result %.2f ms on the mapped file, %.2f ms with a reorder at load (%s)\n",
              times.mapped_ms, times.reordered_ms,
              times.same_bytes ? "to the same bytes" : "to OTHER bytes");
  std::printf("  SQNR %.1f dB against the same rounded inputs, %.1f dB end to end\n",
              accuracy.kernel_db, accuracy.end_to_end_db);
}

void RunModule(const dnnl::engine& engine, const PackedFolder& folder, const Module& module) {
  // Ask oneDNN for the primitive, and use the weights only when they have the form that it wants.
  CheckOrigin(folder, module);
  const Matmul matmul = DescribeMatmul(engine, folder, module, kRows);
  CheckForm(folder, module, matmul);

  // Map the module's parts, and multiply with them.
  MappedFolder files(folder.path);
  const Operands operands = FindOperands(module, files);
  const std::vector<float> x = RandomInputs(static_cast<uint64_t>(kRows) * module.k);
  const KernelInput input = MakeKernelInput(module, operands, matmul.input_dtype, x);
  const std::vector<float> y = Multiply(matmul, module, operands, input);

  // The rest only demonstrates: a consumer has its y now.
  const Times times = MeasureTimes(folder, module, matmul, operands, input);
  const Accuracy accuracy = MeasureAccuracy(module, operands, x, input, y);
  Print(module, matmul, times, accuracy);
  if (times.same_bytes && accuracy.kernel_db >= kLeastKernelDb &&
      accuracy.end_to_end_db >= kLeastEndToEndDb) {
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
