#include "prepack/model/split_linear.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "prepack/base/memory.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

class ChosenChannels final : public QuantizedLinear {
 public:
  ChosenChannels(const QuantizedLinear& whole, std::string_view module, ChannelChoice choice)
      : whole_(whole), choice_(choice) {
    Describe(whole);
    module_.Own(module);
    n_ = choice.n;
    Scheme of_choice = whole.scheme();
    if (of_choice.granularity == Granularity::kTensor) of_choice.scale_rows = n_;
    scheme_ = of_choice;
    source_bytes_ = whole.source_bytes() / whole.n() * n_;
    ShareOrder(whole);
    if (stacked_bias() != nullptr) {
      RareNumbers rare = this->rare();
      rare.stacked_bias->channels = whole.n();
      rare.stacked_bias->first = choice.first;
      rare.stacked_bias->step = choice.step;
      SetRare(rare);
    }
  }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override {
    PREPACK_TRY(CheckPanel(range, out.size()));
    const PanelRange wide = InWhole(range);
    if (choice_.step == 1) return whole_.ReadCodes(wide, out);
    Scratch<std::byte> codes(PanelBytes(scheme_->code, wide));
    PREPACK_TRY(whole_.ReadCodes(wide, {codes.data(), codes.size()}));
    PickRows(codes.data(), PanelRowBytes(scheme_->code, range.cols), range.rows, out.data());
    return {};
  }

  bool HasColumns(const PanelRange& range) const override {
    return IsEvenPiece() && whole_.HasColumns(InWhole(range));
  }
  Status ReadColumns(const PanelRange& range, std::span<std::byte> out) const override {
    if (!IsEvenPiece()) return QuantizedLinear::ReadColumns(range, out);
    return whole_.ReadColumns(InWhole(range), out);
  }
  std::optional<CodesInSource> FindCodes(const PanelRange& range) const override {
    return choice_.step == 1 ? whole_.FindCodes(InWhole(range)) : std::nullopt;
  }

  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override {
    PREPACK_TRY(CheckRows(n0, rows, out.size()));
    return ReadRows(n0, rows, out, [this](uint64_t first, uint64_t count, std::span<float> to) {
      return whole_.ReadScales(first, count, to);
    });
  }
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override {
    PREPACK_TRY(CheckRows(n0, rows, out.size()));
    return ReadRows(n0, rows, out, [this](uint64_t first, uint64_t count, std::span<uint8_t> to) {
      return whole_.ReadZeroPoints(first, count, to);
    });
  }
  // Those of the whole, which is read once more for each of its pieces.
  Result<uint64_t> CountStrayBits() const override { return whole_.CountStrayBits(); }

 private:
  bool IsEvenPiece() const { return choice_.step == 1 && choice_.first % 2 == 0; }
  // From the first to the last of the wanted channels.
  uint64_t RowsInWhole(uint64_t rows) const {
    return rows == 0 ? 0 : (rows - 1) * choice_.step + 1;
  }
  PanelRange InWhole(const PanelRange& range) const {
    return {.n0 = choice_.first + range.n0 * choice_.step,
            .rows = RowsInWhole(range.rows),
            .k0 = range.k0,
            .cols = range.cols};
  }
  void PickRows(const std::byte* from, size_t row_bytes, uint64_t rows, std::byte* to) const {
    for (uint64_t row = 0; row < rows; ++row) {
      std::memcpy(to + row * row_bytes, from + row * choice_.step * row_bytes, row_bytes);
    }
  }

  template <typename T, typename Read>
  Status ReadRows(uint64_t n0, uint64_t rows, std::span<T> out, Read read) const {
    const uint64_t first = choice_.first + n0 * choice_.step;
    if (choice_.step == 1) return read(first, rows, out);
    Scratch<T> values(RowsInWhole(rows) * groups());
    PREPACK_TRY(read(first, RowsInWhole(rows), std::span<T>(values.data(), values.size())));
    PickRows(reinterpret_cast<const std::byte*>(values.data()), groups() * sizeof(T), rows,
             reinterpret_cast<std::byte*>(out.data()));
    return {};
  }

  const QuantizedLinear& whole_;
  ChannelChoice choice_;
};

}  // namespace

Result<std::unique_ptr<QuantizedLinear>> ChooseChannels(const QuantizedLinear& whole,
                                                        std::string_view module,
                                                        ChannelChoice choice) {
  const Scheme& scheme = whole.scheme();
  const bool blocks = scheme.granularity == Granularity::kBlock && choice.n != whole.n();
  if (blocks && (choice.step != 1 || choice.first % scheme.scale_rows != 0)) {
    return Unsupported(fmt::format("module {}", whole.module()),
                       fmt::format("{} of its output channels cannot become a module of their own: "
                                   "blocks of {} channels share a scale",
                                   choice.n, scheme.scale_rows));
  }
  return std::unique_ptr<QuantizedLinear>(std::make_unique<ChosenChannels>(whole, module, choice));
}

Result<std::vector<std::unique_ptr<QuantizedLinear>>> SplitExpert(const QuantizedLinear& stored,
                                                                  bool interleaved) {
  std::vector<std::unique_ptr<QuantizedLinear>> pieces;
  const std::optional<ExpertName> name = ParseExpertName(stored.module());
  if (!name || !name->stored_stacked) return pieces;
  const auto add = [&](std::string_view projection, ChannelChoice choice) -> Status {
    PREPACK_TRY_ASSIGN(
        std::unique_ptr<QuantizedLinear> piece,
        ChooseChannels(stored, fmt::format("{}.{}.{}", name->mixture, name->index, projection),
                       choice));
    pieces.push_back(std::move(piece));
    return {};
  };
  const uint64_t n = stored.n();
  if (name->projection != "gate_up_proj" || n % 2 != 0) {
    PREPACK_TRY(add(name->projection, {.first = 0, .step = 1, .n = n}));
    return pieces;
  }
  const uint64_t step = interleaved ? 2 : 1;
  PREPACK_TRY(add("gate_proj", {.first = 0, .step = step, .n = n / 2}));
  PREPACK_TRY(add("up_proj", {.first = interleaved ? 1 : n / 2, .step = step, .n = n / 2}));
  return pieces;
}

}  // namespace prepack
