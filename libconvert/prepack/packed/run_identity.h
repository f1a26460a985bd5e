#pragma once

// A share of a conversion, for one of many machines: --part I/N.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/json.h"

namespace prepack {

inline constexpr uint32_t kMaxParts = 99'999;  // what five digits can say

struct Part {
  uint32_t index = 1;  // 1 … count
  uint32_t count = 1;

  bool IsWhole() const { return count == 1; }
  std::string Text() const;  // "3/8"

  friend bool operator==(const Part&, const Part&) = default;
};

// Does this part read share `share` of the source, counted from 1, besides what it is made of, so
// that `prepack merge` can tell one source from two? Parts stand in a square, row by row, and read
// the shares of their row and of their column. Of any two shares one part reads both: the one that
// stands in the row of the first and in the column of the second. So two tensors that are not of
// one model contradict what some part has seen. Each part reads less than 2·√N of the N shares.
bool Witnesses(const Part& part, uint32_t share);

// "3/8"; kUsage for anything else.
Result<Part> ParsePart(std::string_view text);

// Where the part of an output goes: beside it, as "OUT.part-00003-of-00008".
std::filesystem::path PartFolder(const std::filesystem::path& output, const Part& part);

// Which part has what begins `start` bytes into an output of `total` bytes and is `bytes` long:
// the one that its middle lies in. Parts are runs of about the same size, whatever order they are
// made in.
uint32_t PartOf(uint64_t start, uint64_t bytes, uint64_t total, uint32_t count);

// What one part of a verification or check has measured.
struct PartReport {
  size_t measured = 0;  // how many things
  std::string text;     // of the file that --merge reads
};

// What a run has measured, for a later run that can no longer measure it.
struct MeasuredNote {
  std::string unit;
  std::string key;    // kind and name
  std::string value;  // JSON
};

// What a conversion is bound to. Two runs with the same identity write the same bytes, so one may
// continue what the other began (convert/resume.h), their parts belong together, and what the one
// has finished the other need not do again.

struct RunIdentity {
  std::string tool;  // version of prepack
  // Hash of config.json, of the quantizer's own configs, and of the names, sizes and headers of all
  // shards: what is known before any weight is read. Weights are compared by their own hashes.
  std::string source;
  std::string options;  // as text
  std::string plan;     // hash of what every module becomes, and of what packs it

  friend bool operator==(const RunIdentity&, const RunIdentity&) = default;
};

// OK when they are equal; else kUsage: `where` is what belongs to `found`, and the first field that
// differs is named.
Status CheckSameRun(const RunIdentity& found, const RunIdentity& expected, std::string_view where);

// The same error where the contents of a source differ: `found` and `expected` name something of it
// and its hash.
Status AnotherSource(std::string_view where, std::string_view found, std::string_view expected);

Json IdentityJson(const RunIdentity& identity);
Result<RunIdentity> ReadIdentity(const Json& json, std::string_view where);

}  // namespace prepack
