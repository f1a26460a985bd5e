#pragma once

#include <cstdint>
#include <filesystem>

#include "prepack/formats/accepted.h"

namespace prepack::gguf {

// What becomes of a module that no type holds.
enum class IfNotHeld : uint8_t {
  kRefuse,
  kFloats,  // BF16; if nothing may be rounded, F32
  kQ8_0,    // it is quantized, to blocks of 32 with 8 bits; not if nothing may be rounded
};

// What decides the contents of a GGUF file.
struct PlanOptions {
  std::filesystem::path source = {};
  std::filesystem::path llama_cpp = {};  // its sources, which have the converter
  std::filesystem::path python = {};     // the program that runs the converter
  // Nothing is rounded: types that hold everything are taken, and where a scale would have to be
  // rounded nevertheless, the conversion fails.
  bool exact = false;
  IfNotHeld if_not_held = IfNotHeld::kRefuse;
  bool tokenizer = true;  // false: the file gets none
  // May the converter run Python code that comes with the checkpoint?
  bool trust_code = false;
  // The converter gets values that mean nothing, and no tensor of the source is read: for what it
  // does with them.
  bool probe = false;
  AcceptedFindings accepted = {};
};

}  // namespace prepack::gguf
