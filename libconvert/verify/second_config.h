#ifndef PREPACK_VERIFY_SECOND_CONFIG_H_
#define PREPACK_VERIFY_SECOND_CONFIG_H_

// How the second decoders find what a checkpoint says of its quantization. Writers put it into
// config.json, at the top level or into the config of any model nested in it, under one of two
// names, or into a file of their own. The readers know the same places (see
// formats/quantization_config.h), by other code.

#include <cstdint>
#include <string>
#include <vector>

#include "container/checkpoint.h"

namespace prepack {

// Every object that declares the quantization: those of config.json, the outermost first, then
// those of the quantizers' own files. They point into the checkpoint.
std::vector<const Json*> SecondDeclarations(const Checkpoint& source);

// GPTQModel takes the keys of its config in any case; nobody else does.
enum class KeyCase : uint8_t { kExact, kAny };

// The field in the first declaration that has it, or nullptr. Keys that are asked for are in lower
// case.
const Json* SecondConfigField(const Checkpoint& source, const std::string& key,
                              KeyCase key_case = KeyCase::kExact);
// Every value that a declaration has under that key, however deep: what a group of layers or an
// override may say.
std::vector<const Json*> SecondConfigValues(const Checkpoint& source, const std::string& key,
                                            KeyCase key_case = KeyCase::kExact);
// Those that are positive integers, each once, ascending.
std::vector<uint64_t> SecondConfigNumbers(const Checkpoint& source, const std::string& key,
                                          KeyCase key_case = KeyCase::kExact);

// Is every module symmetric, as far as `sym` of the config and of its overrides says? It is where
// they say nothing.
bool SecondAllSymmetric(const Checkpoint& source, KeyCase key_case = KeyCase::kExact);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_CONFIG_H_
