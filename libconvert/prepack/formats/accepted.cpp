#include "prepack/formats/accepted.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/formats/regex.h"

namespace prepack {
namespace {

// They say that something is wrong, but not what: to accept them would be to accept everything.
// The last one speaks of --accept itself.
constexpr std::array<std::string_view, 3> kNeverAccepted = {
    FindingId("malformed"), FindingId("unsupported"), FindingId("accept-unused")};

thread_local const AcceptedFindings* accepted_here = nullptr;

// Identifiers of the table that may be accepted.
std::vector<std::string> AcceptableIds(AcceptedBy by) {
  const std::span<const std::string_view> convertible = ConvertibleFindings();
  if (by == AcceptedBy::kConversion) return {convertible.begin(), convertible.end()};
  std::vector<std::string> ids;
  for (const FindingKind& kind : AllFindingKinds()) {
    if (std::ranges::count(kNeverAccepted, kind.id) == 0) ids.emplace_back(kind.id);
  }
  return ids;
}

Status CheckAcceptable(const std::string& id, AcceptedBy by, std::string_view where) {
  const std::vector<std::string> ids = AcceptableIds(by);
  if (std::ranges::count(ids, id) != 0) return {};
  const bool exists = std::ranges::count(AllFindingKinds(), id, &FindingKind::id) != 0;
  Status status =
      Usage(where, exists ? "this finding cannot be accepted" : "no finding has this identifier")
          .Found(Printable(id));
  if (by == AcceptedBy::kConversion) {
    return std::move(status)
        .Expected(fmt::format("{}", fmt::join(ids, ", ")))
        .Hint("Nothing else that ends a conversion has a meaning that could be packed");
  }
  const std::string meant = DidYouMean(id, ids);
  return std::move(status).Hint(meant.empty() ? "docs/check.md lists all findings" : meant);
}

}  // namespace

struct AcceptedFindings::State {
  struct Rule {
    std::string text;
    std::string id;
    ModulePattern pattern;
    std::atomic<bool> used = false;

    // For a finding at `name`, or in the module or tensor `other` if that is not empty. Notes that
    // it was of use.
    Result<bool> Takes(std::string_view name, std::string_view other) {
      PREPACK_TRY_ASSIGN(bool matches, pattern.IsFor(name));
      if (!matches && !other.empty()) {
        PREPACK_TRY_ASSIGN(matches, pattern.IsFor(other));
      }
      if (matches) used = true;
      return matches;
    }
  };
  std::vector<std::string> texts;
  std::vector<std::unique_ptr<Rule>> rules;
  std::mutex mutex;
  std::map<std::pair<std::string, std::string_view>, Finding> noted;  // by module and identifier
};

std::span<const std::string_view> ConvertibleFindings() {
  static constexpr std::array<std::string_view, 1> ids = {FindingId("scale-zero")};
  return ids;
}

Result<AcceptedFindings> AcceptedFindings::Make(std::span<const std::string> texts, AcceptedBy by,
                                                std::string_view where) {
  AcceptedFindings accepted;
  if (texts.empty()) return accepted;
  accepted.state_ = std::make_shared<State>();
  std::vector<std::string>& sorted = accepted.state_->texts;
  sorted.assign(texts.begin(), texts.end());
  std::ranges::sort(sorted);
  // Not std::ranges::unique: clang 14 cannot compile what libstdc++ 12 returns from it.
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  for (const std::string& text : sorted) {
    auto rule = std::make_unique<State::Rule>();
    rule->text = text;
    const size_t equals = text.find('=');
    rule->id = text.substr(0, equals);
    PREPACK_TRY(CheckAcceptable(rule->id, by, where));
    if (equals != std::string::npos) {
      const std::string pattern = text.substr(equals + 1);
      if (pattern.empty()) {
        return Usage(where, "the pattern after \"=\" is missing").Found(Printable(text));
      }
      PREPACK_TRY_ASSIGN(
          ModulePattern compiled,
          ModulePattern::Make(pattern, fmt::format("{} {}", where, Printable(text))));
      rule->pattern = std::move(compiled);
    }
    accepted.state_->rules.push_back(std::move(rule));
  }
  return accepted;
}

const std::vector<std::string>& AcceptedFindings::texts() const {
  static const std::vector<std::string> none;
  return state_ ? state_->texts : none;
}

Result<bool> AcceptedFindings::Accepts(std::string_view id, std::string_view name,
                                       std::string_view other) const {
  if (!state_) return false;
  bool accepts = false;
  for (const auto& rule : state_->rules) {
    if (rule->id != id) continue;
    PREPACK_TRY_ASSIGN(const bool takes, rule->Takes(name, other));
    accepts = accepts || takes;
  }
  return accepts;
}

Status AcceptedFindings::Mark(Finding& finding, std::string_view module) const {
  if (!state_ || finding.accepted) return {};
  for (const auto& rule : state_->rules) {
    if (rule->id != finding.id) continue;
    if (finding.more != 0 && !rule->pattern.is_for_all()) continue;
    PREPACK_TRY_ASSIGN(const bool takes, rule->Takes(finding.where, module));
    finding.accepted = finding.accepted || takes;
  }
  return {};
}

std::vector<std::string> AcceptedFindings::Unused() const {
  std::vector<std::string> unused;
  if (!state_) return unused;
  for (const auto& rule : state_->rules) {
    if (!rule->used) unused.push_back(rule->text);
  }
  return unused;
}

void AcceptedFindings::Note(std::string_view module, Finding finding) const {
  if (!state_) return;
  finding.accepted = true;
  const std::lock_guard lock(state_->mutex);
  state_->noted.try_emplace({std::string(module), finding.id}, std::move(finding));
}

std::vector<std::pair<std::string, Finding>> AcceptedFindings::Noted() const {
  std::vector<std::pair<std::string, Finding>> noted;
  if (!state_) return noted;
  const std::lock_guard lock(state_->mutex);
  for (const auto& [key, finding] : state_->noted) noted.emplace_back(key.first, finding);
  return noted;
}

AcceptanceScope::AcceptanceScope(AcceptedFindings accepted)
    : accepted_(std::move(accepted)), before_(accepted_here) {
  accepted_here = &accepted_;
}

AcceptanceScope::~AcceptanceScope() {
  accepted_here = before_;
}

AcceptedFindings AcceptanceScope::Here() {
  return accepted_here == nullptr ? AcceptedFindings() : *accepted_here;
}

std::vector<Finding> UnusedAcceptances(const AcceptedFindings& accepted) {
  const FindingKind& kind = FindingId("accept-unused").kind();
  std::vector<Finding> findings;
  for (const std::string& text : accepted.Unused()) {
    findings.push_back({.id = kind.id,
                        .severity = kind.severity,
                        .where = "--accept " + text,
                        .message = "nothing that was found is accepted by this",
                        .hint = kind.hint,
                        .more = 0,
                        .accepted = false});
  }
  return findings;
}

}  // namespace prepack
