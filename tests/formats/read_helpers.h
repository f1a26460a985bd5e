#pragma once

// Reading through the canonical interface, for tests of any format.

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "formats/checkpoint_builder.h"
#include "prepack/formats/format.h"
#include "prepack/model/dequantized_linear.h"
#include "temp_folder.h"

namespace prepack::testing {

// An open checkpoint with its model. The checkpoint stays in one place, because the model refers
// to it.
struct OpenedModel {
  std::unique_ptr<Checkpoint> checkpoint;
  QuantizedModel model;

  const QuantizedLinear& Module(std::string_view name) const {
    for (const auto& module : model.modules) {
      if (module->module() == name) return *module;
    }
    throw std::out_of_range("no module " + std::string(name));
  }
};

inline Result<OpenedModel> OpenModel(const std::filesystem::path& path) {
  Result<Checkpoint> checkpoint = Checkpoint::Open(path);
  if (!checkpoint.ok()) return checkpoint.status();
  OpenedModel opened;
  opened.checkpoint = std::make_unique<Checkpoint>(*std::move(checkpoint));
  Result<QuantizedModel> model = ReadQuantizedModel(*opened.checkpoint);
  if (!model.ok()) return model.status();
  opened.model = *std::move(model);
  return opened;
}

inline OpenedModel MustOpen(const std::filesystem::path& path) {
  Result<OpenedModel> opened = OpenModel(path);
  INFO(path.string() << ": " << opened.status().ToString());
  REQUIRE(opened.ok());
  return *std::move(opened);
}

inline std::vector<std::byte> Codes(const QuantizedLinear& linear, const PanelRange& range) {
  std::vector<std::byte> codes(PanelBytes(linear.scheme().code, range), std::byte{0xA5});
  const Status status = linear.ReadCodes(range, codes);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return codes;
}

inline std::vector<std::byte> Codes(const QuantizedLinear& linear) {
  return Codes(linear, {0, linear.n(), 0, linear.k()});
}

inline std::vector<float> Scales(const QuantizedLinear& linear, uint64_t n0, uint64_t rows) {
  std::vector<float> scales(rows * linear.groups());
  const Status status = linear.ReadScales(n0, rows, scales);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return scales;
}

inline std::vector<uint8_t> ZeroPoints(const QuantizedLinear& linear, uint64_t n0, uint64_t rows) {
  std::vector<uint8_t> zero_points(rows * linear.groups(), 0xA5);
  const Status status = linear.ReadZeroPoints(n0, rows, zero_points);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return zero_points;
}

// Weights of rows [n0, n0 + rows) in f32, input channels in the order of the checkpoint.
inline std::vector<float> Dequantize(const QuantizedLinear& linear, uint64_t n0, uint64_t rows) {
  std::vector<float> weights(rows * linear.k());
  DequantizeBuffers buffers;
  const Status status = DequantizeRows(linear, n0, rows, buffers, weights);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return weights;
}

}  // namespace prepack::testing
