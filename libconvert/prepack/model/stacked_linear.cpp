#include "prepack/model/stacked_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

class StackedLinear final : public QuantizedLinear {
 public:
  StackedLinear(std::string_view module, std::vector<const QuantizedLinear*> members,
                uint64_t experts)
      : members_(std::move(members)), experts_(experts) {
    const QuantizedLinear& first = *members_.front();
    module_.Own(module);
    Scheme scheme = WithoutN(first.scheme());
    if (scheme.granularity == Granularity::kTensor) scheme.granularity = Granularity::kChannel;
    scheme_ = scheme;
    k_ = first.k();
    SetRare({.input = first.input()});
    stored_scale_dtype_ = first.stored_scale_dtype();
    ShareOrder(first);
    for (const QuantizedLinear* member : members_) Add(*member);
    AddSourceTensors();
    if (scheme.code == CodeType::kBF16) scheme_ = DequantizedScheme(n_, k_);
  }

  std::span<const QuantizedLinear* const> members() const override { return members_; }
  uint64_t stacked_experts() const override { return experts_; }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override {
    PREPACK_TRY(CheckPanel(range, out.size()));
    const uint64_t row_bytes = PanelRowBytes(scheme_->code, range.cols);
    return ends_.ForRows(range.n0, range.rows, [&](const StackedRows& piece) {
      return members_[piece.member]->ReadCodes(
          Within(range, piece), out.subspan(piece.before * row_bytes, piece.rows * row_bytes));
    });
  }

  bool HasColumns(const PanelRange& range) const override {
    const std::optional<StackedRows> piece = OnlyPiece(range);
    return piece && members_[piece->member]->HasColumns(Within(range, *piece));
  }

  Status ReadColumns(const PanelRange& range, std::span<std::byte> out) const override {
    const std::optional<StackedRows> piece = OnlyPiece(range);
    if (!piece) return QuantizedLinear::ReadColumns(range, out);
    return members_[piece->member]->ReadColumns(Within(range, *piece), out);
  }

  std::optional<CodesInSource> FindCodes(const PanelRange& range) const override {
    const std::optional<StackedRows> piece = OnlyPiece(range);
    if (!piece) return std::nullopt;
    return members_[piece->member]->FindCodes(Within(range, *piece));
  }

  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override {
    return ReadRows(
        n0, rows, out,
        [](const QuantizedLinear& member, const StackedRows& piece, std::span<float> to) {
          return member.ReadScales(piece.n0, piece.rows, to);
        });
  }

  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override {
    return ReadRows(
        n0, rows, out,
        [](const QuantizedLinear& member, const StackedRows& piece, std::span<uint8_t> to) {
          return member.ReadZeroPoints(piece.n0, piece.rows, to);
        });
  }

  Result<uint64_t> CountStrayBits() const override {
    uint64_t bits = 0;
    for (const QuantizedLinear* member : members_) {
      Result<uint64_t> own = member->CountStrayBits();
      if (!own.ok()) return own;
      bits += *own;
    }
    return bits;
  }

 private:
  void Add(const QuantizedLinear& member) {
    ends_.Add(member.n());
    n_ = ends_.total();
    wide_rows_ = std::max(wide_rows_, member.wide_rows());
    zeros_may_borrow_ = zeros_may_borrow_ || member.zeros_may_borrow();
    source_bytes_ += member.source_bytes();
  }

  // Each once: experts that are stored in one tensor share it.
  void AddSourceTensors() {
    // The source holds each name once.
    std::unordered_set<const char*> seen;
    for (const QuantizedLinear* member : members_) {
      for (const std::string_view tensor : member->source_tensors()) {
        if (seen.insert(tensor.data()).second) source_tensors_.push_back(tensor);
      }
    }
  }

  // Where one member has all of the panel's channels: those of it.
  std::optional<StackedRows> OnlyPiece(const PanelRange& range) const {
    std::optional<StackedRows> only;
    const Status status =
        ends_.ForRows(range.n0, range.rows, [&](const StackedRows& piece) -> Status {
          if (piece.rows == range.rows) only = piece;
          return {};
        });
    return status.ok() ? only : std::nullopt;
  }
  static PanelRange Within(const PanelRange& range, const StackedRows& piece) {
    return {.n0 = piece.n0, .rows = piece.rows, .k0 = range.k0, .cols = range.cols};
  }

  // Reads [rows, G] numbers, member by member.
  template <typename T, typename Read>
  Status ReadRows(uint64_t n0, uint64_t rows, std::span<T> out, Read read) const {
    PREPACK_TRY(CheckRows(n0, rows, out.size()));
    return ends_.ForRows(n0, rows, [&](const StackedRows& piece) {
      return read(*members_[piece.member], piece,
                  out.subspan(piece.before * groups(), piece.rows * groups()));
    });
  }

  std::vector<const QuantizedLinear*> members_;
  StackedEnds ends_;
  uint64_t experts_ = 0;
};

// "q_proj", "0.up_proj" of expert 0, "gate_up_proj.0" of experts that are stored stacked.
std::string_view NameOf(const QuantizedLinear& member) {
  const std::string_view module = member.module();
  const std::optional<ExpertName> expert = ParseExpertName(module);
  return expert ? module.substr(expert->mixture.size() + 1) : LastPart(module);
}

// "q_proj has …, k_proj …"
Status TheyDiffer(const QuantizedLinear& first, std::string_view of_first,
                  const QuantizedLinear& other, std::string_view of_other) {
  return Unsupported(
      "", fmt::format("{} has {}, {} {}", NameOf(first), of_first, NameOf(other), of_other));
}

std::string DescribeInput(const QuantizedLinear& linear) {
  if (!linear.input()) return "no static activations";
  return fmt::format("activations of scale {} and zero point {}", linear.input()->scale,
                     linear.input()->zero_point);
}

// Blocks of channels that share scales must not begin in one member and end in the next.
Status CheckBlocks(const QuantizedLinear& first, const QuantizedLinear& other) {
  const uint64_t rows = WithoutN(first.scheme()).scale_rows;
  if (first.n() % rows == 0) return {};
  return Unsupported("", fmt::format("blocks of {} output channels would begin in {} and end in {}",
                                     rows, NameOf(first), NameOf(other)));
}

Status CheckOrders(const QuantizedLinear& first, const QuantizedLinear& other) {
  if (!first.reordered()) return {};
  PREPACK_TRY_ASSIGN(const SharedOrder order, first.KOrder());
  PREPACK_TRY_ASSIGN(const SharedOrder other_order, other.KOrder());
  if (*order == *other_order) return {};
  return TheyDiffer(first, "one activation order", other, "another");
}

Status CheckGoTogether(const QuantizedLinear& first, const QuantizedLinear& other) {
  if (first.k() != other.k()) {
    return TheyDiffer(first, fmt::format("{} input channels", first.k()), other,
                      fmt::format("{}", other.k()));
  }
  if (WithoutN(first.scheme()) != WithoutN(other.scheme())) {
    return TheyDiffer(first, DescribeScheme(first.scheme()), other, DescribeScheme(other.scheme()));
  }
  if (first.stored_scale_dtype() != other.stored_scale_dtype()) {
    return TheyDiffer(first, fmt::format("{} scales", DTypeName(first.stored_scale_dtype())), other,
                      DTypeName(other.stored_scale_dtype()));
  }
  if (first.input() != other.input()) {
    return TheyDiffer(first, DescribeInput(first), other, DescribeInput(other));
  }
  if (first.reordered() != other.reordered()) {
    return TheyDiffer(first, first.reordered() ? "an activation order" : "no activation order",
                      other, other.reordered() ? "has one" : "has none");
  }
  return CheckOrders(first, other);
}

}  // namespace

Result<std::unique_ptr<QuantizedLinear>> Stack(std::string_view module,
                                               std::vector<const QuantizedLinear*> members,
                                               uint64_t experts, bool for_values) {
  uint64_t n = members.front()->n();
  for (size_t i = 1; i < members.size(); ++i) {
    Status status = CheckGoTogether(*members.front(), *members[i]);
    if (status.ok() && !for_values) status = CheckBlocks(*members[i - 1], *members[i]);
    if (!status.ok()) return status;
    const std::optional<uint64_t> sum = CheckedAdd(n, members[i]->n());
    if (!sum) return Unsupported("", "together they have too many output channels");
    n = *sum;
  }
  return std::unique_ptr<QuantizedLinear>(
      std::make_unique<StackedLinear>(module, std::move(members), experts));
}

std::vector<const QuantizedLinear*> MembersOf(const QuantizedLinear& linear) {
  if (linear.members().empty()) return {&linear};
  return {linear.members().begin(), linear.members().end()};
}

}  // namespace prepack
