#ifndef ONEDNN_CONSUMER_PACKED_FOLDER_H_
#define ONEDNN_CONSUMER_PACKED_FOLDER_H_

// What prepack.json says of a folder for oneDNN. Nothing here calls oneDNN but for the fields of
// its descriptors.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weights_form.h"

// A tensor of a module.
struct Part {
  std::string file;
  uint64_t offset = 0;  // from the start of the file
  std::string dtype;    // as safetensors names it
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
};

// How the kernel gets its inputs.
struct Activations {
  bool quantized = false;  // to s8; the rest says how
  bool dynamic = true;     // by a scale of each row's own
  bool symmetric = true;
};

// oneDNN that was asked for the form of the weights, where one was (--onednn-form native).
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
};

struct PackedFolder {
  std::string path;
  std::string activation_dtype;  // BF16, F16 or F32: of the model's inputs and results
  std::string rebuild;           // the command that makes the folder anew for this machine
  std::vector<Module> modules;
};

// Reads the manifest, and checks that every part of every module is one that its layout has, with
// the right dtype and shape. Throws Refusal. Hashes are for `prepack verify` to check.
PackedFolder OpenPackedFolder(const std::string& path);

#endif  // ONEDNN_CONSUMER_PACKED_FOLDER_H_
