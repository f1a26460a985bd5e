// Each kind of damage that a check of values finds, done to a sound module. tests/cli/damage.py
// does it to real checkpoints and counts.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "catch.h"
#include "check/check_run.h"
#include "prepack/check/channel_orders.h"
#include "prepack/measure/code_windows.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kTall = 1024;  // output channels: 32 windows of rows
const std::string kTallModule = WideModule(0);

TestCheckpoint TallExample() {
  TestCheckpoint checkpoint = WideExample(0);
  checkpoint.config["num_hidden_layers"] = 1;
  checkpoint.config["intermediate_size"] = kTall;
  AddWideModule(checkpoint, kTallModule, 1, nullptr, kTall);
  return checkpoint;
}

std::vector<std::byte>& Codes(TestCheckpoint& checkpoint, const std::string& module = kTallModule) {
  return checkpoint.At(module + ".weight_packed").bytes;
}

std::vector<std::byte>& Scales(TestCheckpoint& checkpoint,
                               const std::string& module = kTallModule) {
  return checkpoint.At(module + ".weight_scale").bytes;
}

// Overwrites a page of codes.
void PutPage(TestCheckpoint& checkpoint, const std::function<unsigned(size_t)>& byte,
             size_t size = 4096) {
  for (size_t i = 0; i < size; ++i) Codes(checkpoint)[8192 + i] = static_cast<std::byte>(byte(i));
}

void Multiply(std::vector<std::byte>& values, float factor) {
  for (size_t i = 0; i < values.size() / 2; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, &values[2 * i], sizeof bits);
    PutBF16(values, i, BF16ToF32(bits) * factor);
  }
}

TEST_CASE("a tall module that was not damaged is sound") {
  RequireSound(RunCheck(TallExample()));
}

TEST_CASE("a page that does not belong into codes is found") {
  SplitMix64 random(5);
  const std::string_view text = "<!DOCTYPE html><html><head><title>Not found</title></head>\n";
  struct Page {
    std::string_view name;
    std::function<unsigned(size_t)> byte;
    size_t size;
    std::string_view message;
  };
  const std::vector<Page> pages = {
      {"zeros", [](size_t) { return 0U; }, 4096, "codes with a mean that weights do not have"},
      {"text", [&](size_t i) { return static_cast<unsigned>(text[i % text.size()]); }, 4096,
       "of the codes, from byte 81"},
      {"noise", [&](size_t) { return static_cast<unsigned>(random.Next() & 0xFFU); }, 8192,
       "spread like noise"},
      {"weights of zero", [](size_t) { return 0x88U; }, 64,
       "4 groups of zeros under the scale of other weights"},
  };
  for (const Page& page : pages) {
    CAPTURE(page.name);
    TestCheckpoint checkpoint = TallExample();
    PutPage(checkpoint, page.byte, page.size);
    const CheckReport report = RunCheck(checkpoint);  // which may see it in the scales as well
    CHECK(Lines(report).find("codes-damaged: " + WideModule(0)) != std::string::npos);
    CHECK(Lines(report).find(page.message) != std::string::npos);
    CHECK(CheckVerdictName(report.verdict) == CheckVerdictName(CheckVerdict::kWarnings));
  }
}

TEST_CASE("rows that are there twice are found") {
  TestCheckpoint checkpoint = TallExample();
  std::vector<std::byte>& codes = Codes(checkpoint);
  std::copy_n(codes.begin(), 16384, codes.begin() + 32768);
  std::vector<std::byte>& scales = Scales(checkpoint);
  std::copy_n(scales.begin(), 16384 / 64 * 8, scales.begin() + 32768 / 64 * 8);
  RequireOnly(RunCheck(checkpoint), "codes-damaged", "output channels that occur twice",
              CheckVerdict::kWarnings);
}

// A panel of 4-bit codes of a bell curve, as formats read it that hold output channels side by
// side.
struct Panel {
  Scheme scheme{.group_size = 128};
  uint64_t k = 256;
  uint64_t rows = 512;
  StatisticsBuffers numbers;

  Panel() {
    SplitMix64 random(7);
    numbers.codes.resize(rows * k / 2);
    numbers.zero_points.assign(rows * 2, 8);
    for (std::byte& byte : numbers.codes) {
      unsigned value = 0;
      for (unsigned shift : {0U, 4U}) {
        const double code = std::clamp(std::round(8 + 2.5 * random.Gaussian()), 0.0, 15.0);
        value |= static_cast<unsigned>(code) << shift;
      }
      byte = static_cast<std::byte>(value);
    }
  }

  std::byte& Byte(uint64_t row, uint64_t at) { return numbers.codes[row * k / 2 + at]; }

  WindowCounts Count() const {
    WindowCounts counts;
    ColumnWindows columns;
    columns.Begin(k);
    columns.Add(scheme, k, rows, numbers.Rows(0, rows, rows), counts);
    columns.End(counts);
    return counts;
  }
};

TEST_CASE("runs of input channels that are not those of weights are counted") {
  const WindowCounts sound = Panel().Count();
  CHECK(sound.column_windows == 256 / 8);  // of one block in four
  CHECK(sound.constant_columns + sound.noisy_columns + sound.shifted_columns +
            sound.repeated_columns ==
        0);
  SplitMix64 random(5);
  Panel constant;
  Panel noise;
  Panel text;
  Panel twice;
  Panel zero;
  for (uint64_t row = 0; row < noise.rows; ++row) {
    constant.Byte(row, 3) = std::byte{0x21};
    zero.Byte(row, 3) = std::byte{0x88};
    for (uint64_t i = 0; i < 4; ++i) {
      noise.Byte(row, 8 + i) = static_cast<std::byte>(random.Next() & 0xFFU);
      text.Byte(row, 8 + i) = static_cast<std::byte>("aeroplane data "[(row * 4 + i) % 15]);
      twice.Byte(row, 8 + i) = twice.Byte(row, 40 + i);
    }
  }
  CHECK(constant.Count().constant_columns == 2);
  CHECK(zero.Count().constant_columns == 0);  // channels that were pruned
  CHECK(noise.Count().noisy_columns == 1);
  CHECK(text.Count().shifted_columns == 1);
  CHECK(twice.Count().repeated_columns == 1);
}

TEST_CASE("FP8 that was dequantized from fewer bits has zeros, and is no noise") {
  const Scheme scheme = {.code = CodeType::kF8E4M3, .bits = 8};
  const auto noisy = [&](uint64_t zero, uint64_t apart) {
    WindowCounts counts;
    RowWindows windows(scheme, counts);
    // Exponents of 10 ± `apart`, and zeros, whose exponent is 0.
    const uint64_t count = kWindowCodes - zero;
    windows.Add({.count = kWindowCodes,
                 .even = 10 * count,
                 .squares = (100 + apart * apart) * count,
                 .negative = count / 2,
                 .zero = zero},
                1, 0);
    CHECK(counts.windows == 1);
    CHECK(counts.shifted_windows == (zero > kWindowCodes / 2 ? 1 : 0));
    return counts.noisy_windows;
  };
  CHECK(noisy(0, 2) == 0);
  CHECK(noisy(kWindowCodes / 5, 2) == 0);
  CHECK(noisy(kWindowCodes * 3 / 5, 2) == 0);
  CHECK(noisy(kWindowCodes / 5, 4) == 1);
  CHECK(noisy(kWindowCodes / 100, 5) == 1);
}

TEST_CASE("codes of noise, and of another signedness, are no weights") {
  SplitMix64 random(5);
  TestCheckpoint noise = TallExample();
  for (std::byte& byte : Codes(noise)) byte = static_cast<std::byte>(random.Next() & 0xFFU);
  const CheckReport report = RunCheck(noise);
  INFO(Lines(report));
  CHECK(Lines(report).find("codes-unlike-weights: ") != std::string::npos);
  TestCheckpoint sign = TallExample();
  for (std::byte& byte : Codes(sign)) byte ^= std::byte{0x88};
  CHECK(RunCheck(sign).verdict == CheckVerdict::kWarnings);
}

TEST_CASE("scales of other groups are found") {
  TestCheckpoint checkpoint = TallExample();
  std::vector<std::byte>& scales = Scales(checkpoint);
  std::rotate(scales.begin(), scales.begin() + 8, scales.end());
  RequireOnly(RunCheck(checkpoint), "scale-unrelated", "0 if they do not)",
              CheckVerdict::kWarnings);
}

TEST_CASE("scales of another module are found where that is in the model, too") {
  TestCheckpoint checkpoint = WideExample(3);
  Scales(checkpoint, WideModule(2)) = Scales(checkpoint, WideModule(0));
  const CheckReport report = RunCheck(checkpoint);
  INFO(Lines(report));
  CHECK(Lines(report).find("scale-copied: " + WideModule(2) +
                           ": all 256 scales are equal to those of " + WideModule(0)) !=
        std::string::npos);
  CHECK(report.verdict == CheckVerdict::kWarnings);
}

TEST_CASE("scales that are powers of two may be alike") {
  TestCheckpoint checkpoint = WideExample(2);
  for (const int layer : {0, 1}) {
    std::vector<std::byte>& scales = Scales(checkpoint, WideModule(layer));
    for (size_t i = 0; i < scales.size() / 2; ++i)
      PutBF16(scales, i, i % 5 == 0 ? 0x1p-7F : 0x1p-6F);
  }
  CHECK(Lines(RunCheck(checkpoint)).find("scale-copied") == std::string::npos);
}

TEST_CASE("scales that are a thousand times too large or small are found") {
  for (const float factor : {1000.0F, 0.001F}) {
    TestCheckpoint checkpoint = WideExample(2);
    for (const int layer : {0, 1}) Multiply(Scales(checkpoint, WideModule(layer)), factor);
    const CheckReport report = RunCheck(checkpoint);
    INFO(Lines(report));
    CHECK(std::ranges::count(report.AllFindings(), "weights-size", &Finding::id) == 2);
    CHECK(report.verdict == CheckVerdict::kWarnings);
  }
}

TEST_CASE("a module far from its peers is found") {
  TestCheckpoint checkpoint = WideExample(5);
  for (int layer = 0; layer < 5; ++layer) {
    Multiply(Scales(checkpoint, WideModule(layer)), layer == 3 ? 20.0F : 0.1F);
  }
  RequireOnly(RunCheck(checkpoint), "weights-unlike-peers",
              WideModule(3) + ": the rms of the weights is 2", CheckVerdict::kWarnings);
}

TEST_CASE("a layer that is a copy of another is found") {
  TestCheckpoint checkpoint = WideExample(3);
  Codes(checkpoint, WideModule(2)) = Codes(checkpoint, WideModule(0));
  Scales(checkpoint, WideModule(2)) = Scales(checkpoint, WideModule(0));
  RequireOnly(RunCheck(checkpoint), "module-copied",
              WideModule(2) + ": the same codes as " + WideModule(0), CheckVerdict::kWarnings);
}

TEST_CASE("input channels in another order than those of a sibling are found") {
  // Channels of unlike energy, the same in both, as training makes them.
  SplitMix64 random(11);
  std::vector<float> energies(1024);
  for (float& energy : energies) energy = static_cast<float>(std::exp(random.Gaussian()));
  std::vector<float> unrelated(energies.size());
  for (float& energy : unrelated) energy = static_cast<float>(std::exp(random.Gaussian()));
  const auto judged = [&](const std::vector<float>& up) {
    std::vector<ModuleCheck> modules(2);
    modules[0].module = "model.layers.0.mlp.gate_proj";
    modules[1].module = "model.layers.0.mlp.up_proj";
    for (ModuleCheck& module : modules) module.k = energies.size();
    JudgeSiblings(modules, {energies, up});
    CHECK(modules[0].findings.empty());
    return modules[1].findings;
  };
  CHECK(judged(energies).empty());
  CHECK(judged(unrelated).empty());
  // The strong channels of one may be the weak ones of the other.
  std::vector<float> weak = energies;
  for (float& energy : weak) energy = 1 / energy;
  CHECK(judged(weak).empty());
  for (const std::vector<float>& other : {energies, weak}) {
    std::vector<float> reversed = other;
    for (size_t i = 0; i < reversed.size(); i += 8) {
      std::reverse(reversed.begin() + static_cast<std::ptrdiff_t>(i),
                   reversed.begin() + static_cast<std::ptrdiff_t>(i) + 8);
    }
    const std::vector<Finding> found = judged(reversed);
    REQUIRE(found.size() == 1);
    CHECK(found[0].id == "codes-unlike-weights");
    CHECK(found[0].message.find("reversed by eights by") != std::string::npos);
  }
  // A few channels that stand out, at places that an order does not move, say nothing about it.
  std::vector<float> outliers = unrelated;
  for (size_t i = 0; i < outliers.size(); i += 256) outliers[i] = energies[i] *= 1e6F;
  CHECK(judged(outliers).empty());
  // Every fourth channel was read from parts of others.
  std::vector<float> uneven = unrelated;
  for (size_t i = 0; i < uneven.size(); i += 4) uneven[i] *= 12;
  const std::vector<Finding> places = judged(uneven);
  REQUIRE(places.size() == 1);
  CHECK(places[0].message.find("at some places of a word") != std::string::npos);
}

}  // namespace
}  // namespace prepack::testing
