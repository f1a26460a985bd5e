#include "convert/resume.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parallel.h"
#include "convert/source_hash.h"
#include "convert/streamed_hash.h"
#include "io/folder_names.h"
#include "io/posix.h"

namespace prepack {
namespace {

// Does the unit lie in the shards as it was noted?
Result<bool> IsInPlace(const OutputShards& shards, const std::vector<SafetensorsWriter>& writers,
                       const std::set<size_t>& created, uint64_t index,
                       const FinishedUnit& finished) {
  if (index >= shards.units.size()) return false;
  const OutputUnit& unit = shards.units[index];
  if (finished.outputs.size() != unit.slots.size()) return false;
  for (size_t i = 0; i < unit.slots.size(); ++i) {
    const OutputSlot slot = unit.slots[i];
    if (created.contains(slot.shard)) return false;
    const Result<Hash128> hash = StreamedHash().Finish(RangeOf(writers[slot.shard], slot.index));
    if (!hash.ok()) return hash.status();
    if (*hash != finished.outputs[i]) return false;
  }
  return true;
}

constexpr std::string_view kEarlierRun = "the interrupted run that --resume would continue";
constexpr std::string_view kBeginAnew = "Run without --resume to start from the beginning";

// Are these notes about tensors that the unit is made of?
bool AreAbout(const Checkpoint& checkpoint, const std::vector<const StoredTensor*>& sources,
              const std::vector<SourceNote>& notes) {
  return std::ranges::all_of(notes, [&](const SourceNote& note) {
    return note.tensor < checkpoint.tensors().size() &&
           std::ranges::count(sources, &checkpoint.tensors()[note.tensor]) != 0;
  });
}

// Drops units whose notes are not about them, or which leave out a tensor that nobody else notes:
// that of stacked experts is noted with one of them, which may not have been finished.
void DropUnknownSources(const Checkpoint& checkpoint, const Plan& plan, const OutputShards& shards,
                        FinishedUnits& finished) {
  std::erase_if(finished, [&](const auto& unit) {
    const auto sources = SourcesOf(checkpoint, plan, shards.units[unit.first]);
    return !AreAbout(checkpoint, sources, unit.second.sources);
  });
  for (bool dropped = true; dropped;) {  // what was noted with a unit goes with it
    std::vector<bool> noted(checkpoint.tensors().size());
    for (const auto& [unit, done] : finished) {
      for (const SourceNote& note : done.sources) noted[note.tensor] = true;
    }
    dropped = std::erase_if(finished, [&](const auto& unit) {
                const auto sources = SourcesOf(checkpoint, plan, shards.units[unit.first]);
                return !std::ranges::all_of(sources, [&](const StoredTensor* tensor) {
                  return noted[NumberOf(checkpoint, *tensor)];
                });
              }) != 0;
  }
}

}  // namespace

Result<std::optional<JournalContents>> FindEarlierRun(const std::filesystem::path& path,
                                                      const RunIdentity& identity,
                                                      const Part& part) {
  Result<std::optional<JournalContents>> contents = ReadJournal(path);
  if (!contents.ok() || !contents->has_value()) return contents;
  const JournalContents& found = **contents;
  Status status = CheckSameRun(found.identity, identity, kEarlierRun);
  if (status.ok() && found.part != part) {
    status =
        Usage(kEarlierRun, "it is of another part").Found(found.part.Text()).Expected(part.Text());
  }
  if (status.ok()) return contents;
  return std::move(status).Hint(kBeginAnew);
}

Status RemoveAllBut(const std::filesystem::path& folder, const std::vector<std::string>& kept) {
  const Result<std::vector<std::string>> names = NamesIn(folder);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (std::ranges::find(kept, name) != kept.end()) continue;
    const int result = posix::RemoveTree(folder / name);
    if (result < 0) {
      return SystemError((folder / name).string(), "cannot remove what an interrupted run left",
                         -result);
    }
  }
  return {};
}

Status DropUnfinished(const OutputShards& shards, const std::vector<SafetensorsWriter>& writers,
                      const std::set<size_t>& created, unsigned threads, FinishedUnits& finished) {
  std::vector<FinishedUnits::iterator> units;
  for (auto it = finished.begin(); it != finished.end(); ++it) units.push_back(it);
  std::vector<uint8_t> in_place(units.size(), 0);  // not bool: threads write neighbours
  Status status = ParallelFor(units.size(), threads, [&](size_t i, unsigned) {
    const Result<bool> found =
        IsInPlace(shards, writers, created, units[i]->first, units[i]->second);
    if (!found.ok()) return found.status();
    in_place[i] = *found ? 1 : 0;
    return Status();
  });
  if (!status.ok()) return status;
  for (size_t i = 0; i < units.size(); ++i) {
    if (in_place[i] == 0) finished.erase(units[i]);
  }
  return {};
}

Status CheckSources(const Checkpoint& checkpoint, const Plan& plan, const OutputShards& shards,
                    unsigned threads, Progress& progress, FinishedUnits& finished) {
  DropUnknownSources(checkpoint, plan, shards, finished);
  std::vector<SourceNote> notes;
  std::set<const StoredTensor*> tensors;
  for (const auto& [unit, done] : finished) {
    notes.insert(notes.end(), done.sources.begin(), done.sources.end());
  }
  for (const SourceNote& note : notes) tensors.insert(&checkpoint.tensors()[note.tensor]);
  TensorHashes hashes(checkpoint);
  Status status = HashTensorsAsStage({tensors.begin(), tensors.end()}, threads, progress, hashes);
  if (!status.ok()) return status;
  for (const SourceNote& note : notes) {
    const StoredTensor& tensor = checkpoint.tensors()[note.tensor];
    const Hash128 now = hashes.Of(tensor).value_or(Hash128());
    if (now == note.hash) continue;
    return AnotherSource(kEarlierRun,
                         fmt::format("tensor {} with the hash {}", tensor.name, note.hash.Hex()),
                         now.Hex())
        .Hint(kBeginAnew);
  }
  return {};
}

}  // namespace prepack
