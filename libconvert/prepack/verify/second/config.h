#ifndef PREPACK_VERIFY_SECOND_CONFIG_H_
#define PREPACK_VERIFY_SECOND_CONFIG_H_

// Compares config.json of the source with that of the packed folder, without a parser that convert
// uses: a mistake in that parser would change both in the same way.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/container/checkpoint.h"

namespace prepack {

// Every value outside of the declarations of the quantization must stand in both, in the same order
// and in the same characters. Empty: they do; else which does not.
std::string WhyConfigDiffers(std::string_view source, std::string_view packed);

// How the second decoders find what a checkpoint says of its quantization. Writers put it into
// config.json, at the top level or into the config of any model nested in it, under one of two
// names, or into a file of their own. The readers know the same places (see
// formats/quantization_config.h), by other code.

// Every object that declares the quantization: those of config.json, the outermost first, then
// those of the quantizers' own files. They point into the checkpoint.
std::vector<const Json*> SecondDeclarations(const Checkpoint& source);

// GPTQModel takes the keys of its config in any case; nobody else does.
enum class KeyCase : uint8_t { kExact, kAny };

// The field in the first declaration that has it, or nullptr. Pass keys in lower
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

// Calibration-free exports of AutoRound (model_free) say "auto_round" of asymmetric modules, which
// means that z is stored. Up to 0.15 it was z − 1. By code of its own, as the whole second path:
//
//     mean over the first groups of many modules of (code − stored field)   near 0: z,  near 1: z −
//     1
//
// Left out are modules whose fields are all one number (they are symmetric), and fields near the
// ends of their range. Where the mean does not tell, the version of AutoRound does.

// True for an export that stores z − 1 although its label says z.
bool IsOldModelFree(const Checkpoint& source);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_CONFIG_H_
