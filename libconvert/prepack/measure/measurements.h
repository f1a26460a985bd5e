#pragma once

// What `verify` and `check` measure by reading weights, kept as values that can be written down, so
// that many machines can share the reading (--part I/N, --merge).
//
// A part goes through the whole run but reads only what is its own, and writes what it has measured
// into a report. The merge goes through the run once more and reads no weights: wherever a run
// measures, it takes the value from a report. So everything is judged by the code that always
// judges it, in the same order, and the verdict is that of one machine.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/container/json_fields.h"
#include "prepack/packed/run_identity.h"

namespace prepack {

// How a value of type T is written: as a JSON object, from which exactly the same value is read.
// Its members are listed in the file that defines it (measure/members.h).
template <typename T>
struct MeasuredAs {
  static Json Write(const T& value);
  static T Read(JsonFields& fields);  // errors stay in the status of the fields
};

// Numbers that JSON does not have are words here, and no bit is lost but those of a NaN.
Json ExactNumber(double value);
double ReadExactNumber(JsonFields& fields, std::string_view key);

Hash128 ReadHash(JsonFields& fields, std::string_view key);

Json StatusJson(const Status& status);
Status ReadStatus(JsonFields fields);

// Something that is measured in one go.
struct MeasuredThing {
  std::string_view kind;  // a word: "bytes"
  std::string_view name;  // of its kind
  // What it belongs to: all that belongs to a unit is measured by the same part.
  std::string_view unit;
};

// "module NAME" and so on: the units that runs are cut into.
std::string UnitOfModule(std::string_view module);
std::string UnitOfTensor(std::string_view tensor);
std::string UnitOfFile(std::string_view file);

// What the parts of one run must have in common, and how an error names what is different.
struct IdentityField {
  std::string name;   // in JSON
  std::string other;  // "another version of prepack"
  std::string value;
};
using PartIdentity = std::vector<IdentityField>;
// The first of them: this version of prepack, and the command.
IdentityField CommandIdentity(std::string_view command);

class Measurements {
 public:
  // Of a run that measures all by itself, and keeps nothing.
  Measurements() = default;
  // Of one part.
  explicit Measurements(const Part& part) : mode_(Mode::kPart), part_(part) {}
  // What the parts wrote into their reports, which must be those of all parts of one run with this
  // identity: kUsage if they are not, kMalformed if they are no such reports.
  static Result<Measurements> Read(std::span<const std::filesystem::path> reports,
                                   const PartIdentity& identity);

  bool whole() const { return mode_ == Mode::kWhole; }
  bool is_part() const { return mode_ == Mode::kPart; }
  bool merged() const { return mode_ == Mode::kMerged; }
  const Part& part() const { return part_; }

  // The units of the run, in an order that is the same in all parts, and how much of each is read.
  // They are cut into runs of about the same size.
  void Cut(const std::vector<std::pair<std::string, uint64_t>>& units);
  // Makes `unit` part of another one, unless it has been made part of one before. Not to be called
  // while other threads measure.
  void Assign(std::string_view unit, std::string_view to);
  // Is the unit measured here?
  bool Measures(std::string_view unit) const {
    return whole() || (is_part() && OwnerOf(unit) == part_.index);
  }
  // For showing progress: how much of so many bytes is read here.
  uint64_t ShareOf(uint64_t bytes) const;

  // The result of `measure`, measured here or by another part. In a part, what others measure is a
  // value by default, and so is what could not be measured because the input is bad: the report
  // says so, and the merge fails there as one run would. Other errors end the part. Safe from any
  // thread.
  template <typename T, typename Measure>
  Result<T> Of(const MeasuredThing& thing, Measure&& measure) {
    if (merged() || Has(thing)) return Taken<T>(thing);
    if (whole() && !makes_notes_) return measure();
    if (!Measures(thing.unit)) return T{};
    Result<T> result = measure();
    if (result.ok()) {
      Keep(thing, MeasuredAs<T>::Write(*result));
      return result;
    }
    if (whole() || !IsOfTheInput(result.status())) return result;
    Keep(thing, {{"error", StatusJson(result.status())}});
    return T{};
  }
  // The same for what is measured together with something else, where it has been measured.
  template <typename T>
  Result<T> Taken(const MeasuredThing& thing) const {
    Status wrong;
    Json json = Find(thing, wrong);
    JsonFields fields(json, WhereOf(thing), wrong);
    Status error;
    T value{};
    if (wrong.ok() && fields.Has("error")) {
      error = ReadStatus(fields.In("error"));
    } else if (wrong.ok()) {
      value = MeasuredAs<T>::Read(fields);
    }
    if (!wrong.ok()) return NoteWrong(std::move(wrong));
    if (!error.ok()) return error;
    return value;
  }
  // What is wrong with a report itself. To be looked at when the run has ended: on the way, the
  // error may have been taken for one of the input.
  Status wrong() const;
  // In a part: keeps a value of what it measures itself. In a run that makes notes: notes it.
  void Keep(const MeasuredThing& thing, Json value);
  // What an earlier run has noted is not measured again. Of a whole run, and before it measures.
  void Recall(std::vector<MeasuredNote> notes);
  // Whether what is measured is noted from now on. Of a whole run, while no other thread measures.
  void MakeNotes(bool wanted) { makes_notes_ = wanted; }
  // Those that were made since the last call.
  std::vector<MeasuredNote> TakeNotes();
  // Does a report, or a note, say anything of it?
  bool Has(const MeasuredThing& thing) const {
    return !taken_.empty() && taken_.contains(KeyOf(thing));
  }

  // The report of this part.
  PartReport Report(const PartIdentity& identity) const;

 private:
  enum class Mode : uint8_t { kWhole, kPart, kMerged };

  static std::string KeyOf(const MeasuredThing& thing);
  static bool IsOfTheInput(const Status& status);
  std::string WhereOf(const MeasuredThing& thing) const;
  uint32_t OwnerOf(std::string_view unit) const;
  Json Find(const MeasuredThing& thing, Status& wrong) const;
  Status NoteWrong(Status status) const;
  Status ReadReport(const std::filesystem::path& path, const PartIdentity& identity);

  Mode mode_ = Mode::kWhole;
  Part part_;
  std::map<std::string, uint32_t, std::less<>> owners_;  // of units
  uint64_t own_bytes_ = 0;                               // of units
  uint64_t all_bytes_ = 0;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // of kept_, notes_, wrong_
  std::map<std::string, Json> kept_;
  bool makes_notes_ = false;
  std::vector<MeasuredNote> notes_;
  std::map<std::string, std::string> taken_;  // as text, which takes less memory
  mutable Status wrong_;                      // under the mutex
  std::map<uint32_t, std::string> reports_;   // where the report of each part lies
};

// The reports that a user names: files, and of folders all files NAME.json, ascending.
Result<std::vector<std::filesystem::path>> PartReports(
    std::span<const std::filesystem::path> places);

// Hash of config.json, of the quantizer's own configs, and of the names, sizes and headers of all
// shards; of a checkpoint that cannot be opened, the reason.
std::string CheckpointIdentity(const std::filesystem::path& path);

}  // namespace prepack
