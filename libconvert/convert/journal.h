#ifndef PREPACK_CONVERT_JOURNAL_H_
#define PREPACK_CONVERT_JOURNAL_H_

// What a conversion has finished so far, so that --resume can go on after a crash. One JSON object
// per line, with its xxh3-128, beside the hidden folder (io/output_folder.h); the first says which
// run this is:
//
//     {"prepack":"0.1.0","source":"…","options":"…","plan":"…","part":"1/1"} 93b1…
//     {"unit":0,"rounded_scales":0,"outputs":["…"],"tensors":[4,5],"sources":["…","…"]} 07fe…
//
// A line is written when its unit is, and is not flushed: what a line says is checked against the
// bytes of the shard and of the source before it is believed (resume.h), so that neither a lost
// page nor a lost line nor another source can hurt. The hash is for what neither can tell. A last
// line without its end is ignored, and so is all behind zeros, which a power failure leaves; of two
// lines about one unit the later one counts.

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "convert/part.h"
#include "convert/run_identity.h"
#include "io/file.h"

namespace prepack {

// The line that says `json`.
std::string JournalLine(std::string_view json);

// A tensor of the source as it was when a unit was made of it.
struct SourceNote {
  uint64_t tensor = 0;  // index into Checkpoint::tensors()
  Hash128 hash;         // xxh3-128 of its bytes

  friend bool operator==(const SourceNote&, const SourceNote&) = default;
};

// A unit of OutputShards::units that is in its shard.
struct FinishedUnit {
  uint64_t rounded_scales = 0;
  std::vector<Hash128> outputs;  // xxh3-128 of its tensors, as OutputUnit::slots
  // The source tensors that were hashed with it. One that several units are made of is noted by the
  // first of them.
  std::vector<SourceNote> sources;
};

using FinishedUnits = std::map<uint64_t, FinishedUnit>;

// A journal as it was found.
struct JournalContents {
  RunIdentity identity;
  Part part;
  FinishedUnits units;
  uint64_t bytes = 0;  // up to the end of the last whole line
};

class Journal {
 public:
  // Begins a new journal; what is left over under its name goes.
  static Result<Journal> Create(const std::filesystem::path& path, const RunIdentity& identity,
                                const Part& part);
  // Goes on behind what was found.
  static Result<Journal> Continue(const std::filesystem::path& path,
                                  const JournalContents& contents);

  // Notes a finished unit. From any thread.
  Status Append(uint64_t unit, const FinishedUnit& finished);

 private:
  Journal(File file, uint64_t end);

  File file_;
  uint64_t end_;
  std::unique_ptr<std::mutex> mutex_;
};

// Nothing where there is no journal, or one that does not even say what it is for.
Result<std::optional<JournalContents>> ReadJournal(const std::filesystem::path& path);

}  // namespace prepack

#endif  // PREPACK_CONVERT_JOURNAL_H_
