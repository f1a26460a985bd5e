#include "convert/resume.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cancellation.h"
#include "base/parallel.h"
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

}  // namespace

Result<std::optional<JournalContents>> FindEarlierRun(const std::filesystem::path& path,
                                                      const RunIdentity& identity,
                                                      const Part& part) {
  Result<std::optional<JournalContents>> contents = ReadJournal(path);
  if (!contents.ok() || !contents->has_value()) return contents;
  const JournalContents& found = **contents;
  const std::string where = "the interrupted run that --resume would continue";
  Status status = CheckSameRun(found.identity, identity, where);
  if (status.ok() && found.part != part) {
    status = Usage(where, "it is of another part").Found(found.part.Text()).Expected(part.Text());
  }
  if (status.ok()) return contents;
  return std::move(status).Hint("Run without --resume to start from the beginning");
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

}  // namespace prepack
