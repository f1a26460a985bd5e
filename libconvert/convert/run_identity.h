#ifndef PREPACK_CONVERT_RUN_IDENTITY_H_
#define PREPACK_CONVERT_RUN_IDENTITY_H_

// What a conversion is bound to. Two runs with the same identity write the same bytes, so one may
// continue what the other began (journal.h), their parts belong together (part.h), and what the one
// has finished the other need not do again.

#include <string>

#include "base/result.h"
#include "container/json.h"

namespace prepack {

class Checkpoint;
struct Plan;
struct PlanOptions;

struct RunIdentity {
  std::string tool;  // version of prepack
  // Hash of config.json, of the quantizer's own configs, and of the names, sizes and headers of all
  // shards: what is known before any weight is read. Weights are compared by their own hashes.
  std::string source;
  std::string options;  // as text
  std::string plan;     // hash of what every module becomes, and of what packs it

  friend bool operator==(const RunIdentity&, const RunIdentity&) = default;
};

RunIdentity IdentityOf(const Checkpoint& checkpoint, const Plan& plan, const PlanOptions& options,
                       uint64_t shard_bytes);

// OK when they are equal; else kUsage: `where` is what belongs to `found`, and the first field that
// differs is named.
Status CheckSameRun(const RunIdentity& found, const RunIdentity& expected, std::string_view where);

// The same error where the contents of a source differ: `found` and `expected` name something of it
// and its hash.
Status AnotherSource(std::string_view where, std::string_view found, std::string_view expected);

Json IdentityJson(const RunIdentity& identity);
Result<RunIdentity> ReadIdentity(const Json& json, std::string_view where);

}  // namespace prepack

#endif  // PREPACK_CONVERT_RUN_IDENTITY_H_
