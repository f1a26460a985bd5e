#pragma once

// What one rule of Quark's config says: how weights and activations are quantized.

#include <optional>
#include <string>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/fp4/module.h"
#include "prepack/formats/fp8/module.h"
#include "prepack/formats/quark/integers.h"

namespace prepack::quark {

// How a module is quantized.
struct Spec {
  std::optional<fp8::Meaning> fp8;         // where it is FP8 of a kind that is read
  std::optional<fp4::Meaning> fp4;         // where it is MXFP4 or NVFP4
  std::optional<IntegerMeaning> integers;  // where it is integers of 4 or 8 bits
  std::string other;                       // else what it is, for people; empty: not quantized
  bool twice = false;                      // `other` is quantized, and that again
  // Why activations of this kind are not read: an error of the modules that the rule is for.
  Status inputs;

  bool quantizes() const { return fp8 || fp4 || integers || !other.empty(); }
  // Do both mean the same? Of activations that are not read, nothing else counts.
  friend bool operator==(const Spec& a, const Spec& b) {
    return a.fp8 == b.fp8 && a.fp4 == b.fp4 && a.integers == b.integers && a.other == b.other &&
           a.inputs.ok() == b.inputs.ok();
  }
};

// A string field, "" where it is absent.
Result<std::string> Text(const Json& fields, std::string_view key, std::string_view where);

// `where` names the place of the rule. What prepack does not read is said in the result; an error
// is only what no version of Quark writes.
Result<Spec> ParseSpec(const Json& fields, const std::string& where);

}  // namespace prepack::quark
