#pragma once

// The files of fixtures/golden_experts/: the experts of a layer as an op takes them, activations,
// which experts each token was sent to, and what the real op made of it.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gemm/kernel_model_file.h"
#include "prepack/gemm/kernel_model.h"
#include "status_matchers.h"

namespace prepack::testing {

class ExpertsFile {
 public:
  explicit ExpertsFile(const std::filesystem::path& path)
      : file_(path),
        ids_(file_.Values<int32_t>("topk_ids")),
        weights_(file_.Values<float>("topk_weights")),
        x_(Floats(file_, "x")) {}

  const GoldenFile& file() const { return file_; }
  uint64_t count() const { return file_.At("w13").shape[0]; }
  uint64_t tokens() const { return file_.At("x").shape[0]; }
  uint64_t width() const { return file_.At("x").shape[1]; }
  uint64_t choices() const { return ids_.size() / tokens(); }  // of a token
  DType dtype() const { return file_.At("x").dtype; }
  const std::vector<float>& x() const { return x_; }

  // Of choice i, those of a token one after the other: the router's weight, and the token's x.
  float Weight(uint64_t i) const { return weights_[i]; }
  std::span<const float> X(uint64_t i) const {
    return std::span(x_).subspan(i / choices() * width(), width());
  }

  // Choices in the order of their experts.
  std::vector<uint64_t> ByExpert() const {
    std::vector<uint64_t> order(ids_.size());
    std::iota(order.begin(), order.end(), uint64_t{0});
    std::ranges::stable_sort(order, {}, [&](uint64_t i) { return ids_[i]; });
    return order;
  }

  // The layer ("13" or "2") of an expert.
  PackedOperands Layer(const std::string& layer, uint64_t expert) const {
    const GoldenFile::Tensor& weight = file_.At("w" + layer);
    PackedOperands packed;
    packed.n = weight.shape[1];
    packed.k = weight.shape[2] * (weight.dtype == DType::kU8 ? 2 : 1);
    packed.group_size = GroupSize(packed.k);
    packed.weight = Slice("packed.w" + layer, expert);
    if (file_.layout() == "vllm-arm/int4-w4a8") return packed;  // the weight holds all else
    const std::string scale = (file_.Has("packed.s" + layer) ? "packed.s" : "s") + layer;
    if (file_.Has(scale)) {
      packed.scale_dtype = file_.At(scale).dtype;
      packed.scale = Slice(scale, expert);
    }
    if (file_.Has("b" + layer)) {
      packed.bias_dtype = file_.At("b" + layer).dtype;
      packed.bias = Slice("b" + layer, expert);
    }
    return packed;
  }

  // x [m, K] times that layer; the result is rounded to `dtype`.
  std::vector<float> Multiply(const std::string& layer, uint64_t expert, DType dtype,
                              std::span<const float> x) const {
    const PackedOperands packed = Layer(layer, expert);
    const ModelInput input{.m = x.size() / packed.k, .dtype = dtype, .x = x, .slab = {}};
    std::vector<float> y(input.m * packed.n);
    RequireOk(Value(MakeKernelModel(file_.layout(), packed, input))->Run(0, y));
    return y;
  }

  // What the experts make of each choice, [tokens * choices, width]. `input` gives the x of one,
  // `activate` what the second layer is given in place of the outputs of the first. Both layers
  // round to `dtype`.
  template <typename Input, typename Activate>
  std::vector<float> Run(DType dtype, const Input& input, const Activate& activate) const {
    std::vector<float> all(ids_.size() * width());
    for (uint64_t expert = 0; expert < count(); ++expert) {
      std::vector<uint64_t> chosen;
      std::vector<float> x;
      for (uint64_t i = 0; i < ids_.size(); ++i) {
        if (static_cast<uint64_t>(ids_[i]) != expert) continue;
        chosen.push_back(i);
        const std::vector<float> row = input(i);
        x.insert(x.end(), row.begin(), row.end());
      }
      if (chosen.empty()) continue;
      const std::vector<float> first = Multiply("13", expert, dtype, x);
      std::vector<float> between;
      for (uint64_t row = 0; row < chosen.size(); ++row) {
        const size_t rows = first.size() / chosen.size();
        const std::vector<float> out = activate(std::span(first).subspan(row * rows, rows));
        between.insert(between.end(), out.begin(), out.end());
      }
      const std::vector<float> y = Multiply("2", expert, dtype, between);
      for (uint64_t i = 0; i < y.size(); ++i) {
        all[chosen[i / width()] * width() + i % width()] = y[i];
      }
    }
    return all;
  }

 private:
  uint64_t GroupSize(uint64_t k) const {
    if (file_.layout() == "vllm-cpu/mxfp4") return 32;
    const std::string stated = file_.Metadata("group_size");
    return stated.empty() || stated == "0" ? k : std::stoull(stated);
  }

  std::span<const std::byte> Slice(const std::string& name, uint64_t expert) const {
    const std::vector<std::byte>& all = file_.At(name).bytes;
    return std::span(all).subspan(expert * (all.size() / count()), all.size() / count());
  }

  GoldenFile file_;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
  std::vector<float> x_;
};

// Those of one layout, in the order of their names.
inline std::vector<std::filesystem::path> ExpertFilesOf(std::string_view layout) {
  std::string prefix = std::string(layout) + "_";
  prefix[prefix.find('/')] = '_';
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("golden_experts"))) {
    if (entry.path().filename().string().starts_with(prefix)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace prepack::testing
