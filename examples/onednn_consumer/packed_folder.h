#pragma once

// The contents of a folder that `prepack convert --target onednn` made, as its prepack.json lists
// them. Nothing in this file calls oneDNN.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

// The memory format of a weight matrix [K, N]. oneDNN's own descriptor is opaque, and two of them
// can be compared only inside one version of the library; plain fields can be stored in a file.
struct WeightsForm {
  std::array<uint64_t, 2> dims = {};  // K, N
  std::array<uint64_t, 2> padded_dims = {};
  std::array<uint64_t, 2> strides = {};        // from one block to the next, in elements
  std::vector<std::array<uint64_t, 2>> inner;  // dimension and size, outermost first
  // Sums that follow the elements, each an array of i32 [padded N]:
  bool s8s8_compensation = false;        // first -128 * the sum over K
  bool zero_point_compensation = false;  // then -1 * the sum over K

  friend bool operator==(const WeightsForm&, const WeightsForm&) = default;

  uint64_t BlockSize(uint64_t dim) const;          // of all inner blocks of a dimension
  uint64_t Element(uint64_t n, uint64_t k) const;  // index of weight (n, k) in the stored array
  std::string ToString() const;
};

// One tensor of a module.
struct Part {
  std::string file;
  uint64_t offset = 0;  // from the start of the file
  std::string dtype;    // the name that safetensors uses
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
};

// How the inputs of a module are quantized before the multiplication.
struct Activations {
  bool quantized = false;  // to s8; otherwise the kernel takes them in bf16 or f32
  bool dynamic = true;     // each row has a scale of its own; otherwise the folder stores one scale
  bool symmetric = true;   // without zero points
};

// The oneDNN that chose the form of the weights (prepack convert --onednn-form native).
struct Origin {
  std::string version;
  std::string isa;
};

struct Module {
  std::string name;
  std::string layout;
  uint64_t n = 0;  // output channels
  uint64_t k = 0;  // input channels
  uint64_t group_size = 0;
  bool symmetric = true;  // weights without zero points
  Activations activations;
  std::map<std::string, Part> parts = {};
  WeightsForm form = {};
  std::optional<Origin> origin = {};

  bool Is4Bit() const { return layout != "onednn/w8a8"; }
  bool Has(const std::string& part) const { return parts.contains(part); }
  bool HasStaticActivations() const { return activations.quantized && !activations.dynamic; }
};

struct PackedFolder {
  std::string path;
  std::string activation_dtype;  // BF16, F16 or F32: the model's inputs and results
  std::string rebuild;           // the command that packs the folder again on this machine
  std::vector<Module> modules;
};

// Reads the manifest and checks that each module has exactly the parts that its layout needs, with
// the right dtypes and shapes. Throws Refusal. The hashes in the manifest are for `prepack verify`.
PackedFolder OpenPackedFolder(const std::string& path);
