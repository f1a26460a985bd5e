#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/hash.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/plan.h"
#include "prepack/io/file.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/run_identity.h"

namespace prepack {

// What a conversion of `checkpoint` by `plan` is bound to.
RunIdentity IdentityOf(const Checkpoint& checkpoint, const Plan& plan, const PlanOptions& options,
                       uint64_t shard_bytes);

// What a conversion has finished so far, so that --resume can go on after a crash. One JSON object
// per line, with its xxh3-128, beside the hidden folder (io/output_folder.h); the first says which
// run this is:
//
//     {"prepack":"0.1.0","source":"…","options":"…","plan":"…","part":"1/1"} 93b1…
//     {"unit":0,"rounded_scales":0,"outputs":["…"],"tensors":[4,5],"sources":["…","…"]} 07fe…
//
// with "details" where the writer of the output has some. A line is written when its unit is, and
// is not flushed: what a line says is checked against the bytes of the shard and of the source
// before it is believed (resume.h), so that neither a lost page nor a lost line nor another source
// can hurt. The hash is for what neither can tell. A last line without its end is ignored, and so
// is all behind zeros, which a power failure leaves; of two lines about one unit the later one
// counts. Where the source goes while it is verified, there are lines of what was measured of it,
// too, which are flushed before it goes:
//
//     {"measured":"exact model.layers.0.mlp.down_proj","unit":"module …","value":{…}} 5d1c…

// The line that says `json`.
std::string JournalLine(std::string_view json);

// A tensor of the source as it was when a unit was made of it.
struct SourceNote {
  uint64_t tensor = 0;  // index into Checkpoint::tensors()
  Hash128 hash;         // xxh3-128 of its bytes

  friend bool operator==(const SourceNote&, const SourceNote&) = default;
};

// The tensors that a unit is made of. What a unit is, the writer of the output knows: here they are
// numbers.
using SourcesOfUnit = FunctionRef<std::vector<const StoredTensor*>(size_t unit)>;

// A unit that is in the output.
struct FinishedUnit {
  uint64_t rounded_scales = 0;
  std::vector<Hash128> outputs;  // xxh3-128 of its tensors, in the order of the unit
  // The source tensors that were hashed with it. One that several units are made of is noted by the
  // first of them.
  std::vector<SourceNote> sources;
  std::string details = {};  // JSON of what else the writer knows of it; empty: nothing
};

using FinishedUnits = std::map<uint64_t, FinishedUnit>;

// A journal as it was found.
struct JournalContents {
  RunIdentity identity;
  Part part;
  FinishedUnits units;
  std::vector<MeasuredNote> notes;
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
  Status Append(const std::vector<MeasuredNote>& notes);
  // Flushes to the disk what has been noted.
  Status Sync() { return file_.Sync(); }

 private:
  Journal(File file, uint64_t end);
  Status AppendText(const std::string& text);

  File file_;
  uint64_t end_;
  std::unique_ptr<std::mutex> mutex_;
};

// Nothing if there is no journal, or if it does not even say what it is for.
Result<std::optional<JournalContents>> ReadJournal(const std::filesystem::path& path);

// Has an earlier run of the same conversion made the output already? Then --resume has nothing to
// do. All of the source is read and its hashes compared with those that the output recorded: times
// say nothing about contents, since copies keep them or make them alike, and clocks differ. Of the
// output's own files, sizes decide: what their bytes are, `verify` tells.

// The manifest of the packed folder, or of the part, in `folder`; nothing when there is none, or
// one that does not say what it was made by. kUsage when it was made by another conversion, or
// of another source; kMalformed when it is damaged.
Result<std::optional<Manifest>> FindFinishedRun(const std::filesystem::path& folder,
                                                const RunIdentity& identity, const Part& part,
                                                const Checkpoint& source, unsigned threads,
                                                Progress& progress);

// Goes on where a run that was interrupted left off: what its journal says is checked against the
// bytes that are in the shards, and against those of the source. Only what is kept is hashed.

// The journal at `path` when it is of this very run; nothing when there is none. kUsage when it is
// of another source, other options, another part or another prepack.
Result<std::optional<JournalContents>> FindEarlierRun(const std::filesystem::path& path,
                                                      const RunIdentity& identity,
                                                      const Part& part);

// Removes all files of a hidden folder but the shards: they are written anew.
Status RemoveAllBut(const std::filesystem::path& folder, const std::vector<std::string>& names);

// Drops the units whose bytes are not in the output, as `is_in_place` says, from any thread.
using UnitIsInPlace = FunctionRef<Result<bool>(uint64_t unit, const FinishedUnit& finished)>;
Status DropUnfinished(UnitIsInPlace is_in_place, unsigned threads, FinishedUnits& finished);

// Was each unit made of what the source holds now? kUsage when a tensor has changed: two models
// must not get into one output. Units of which the journal does not say what they were made of are
// dropped.
Status CheckSources(const Checkpoint& checkpoint, SourcesOfUnit sources_of, unsigned threads,
                    Progress& progress, FinishedUnits& finished);

}  // namespace prepack
