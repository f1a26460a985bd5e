#include "prepack/layouts/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "prepack/layouts/fingerprint.h"

namespace prepack {
namespace {

constexpr uint64_t kRowCells = 8;  // with three digits in n and k, a row has fewer than 100 columns

// How one cell follows the last weight before it: whether it is a weight, whether cells that are
// none stand between, and over how many n and k.
using Step = std::tuple<bool, bool, int64_t, int64_t>;

Step StepTo(const WeightCell& cell, const WeightPlace& last, bool gap) {
  if (!cell) return {};
  return {true, gap, static_cast<int64_t>(cell->n) - static_cast<int64_t>(last.n),
          static_cast<int64_t>(cell->k) - static_cast<int64_t>(last.k)};
}

// Cells to begin a row with: the first, and those that follow in a new way and are not in a row.
std::vector<uint64_t> RowBegins(const std::vector<WeightCell>& cells, uint64_t byte_cells) {
  std::vector<uint64_t> begins = {0};
  std::set<Step> seen;
  WeightPlace last;
  for (uint64_t i = 0; i < cells.size(); ++i) {
    const bool gap = i != 0 && !cells[i - 1];
    const bool is_new = seen.insert(StepTo(cells[i], last, gap)).second;
    if (is_new && i >= begins.back() + kRowCells) begins.push_back(i / byte_cells * byte_cells);
    if (cells[i]) last = *cells[i];
  }
  return begins;
}

std::string CellText(const WeightCell& cell) {
  return cell ? fmt::format("n{}k{}", cell->n, cell->k) : "·";
}

// Cells are as wide as the widest of the drawing; the nibbles of a byte stand closer.
std::string RowText(const std::vector<WeightCell>& cells, uint64_t begin, uint64_t byte_cells,
                    size_t width, const PaintCell& paint) {
  const uint64_t end = std::min<uint64_t>(begin + kRowCells, cells.size());
  std::string text;
  for (uint64_t i = begin; i < end; ++i) {
    text += i % byte_cells == 0 ? "  " : " ";
    std::string cell = fmt::format("{:<{}}", CellText(cells[i]), width);
    text += paint ? paint(cells[i], std::move(cell)) : cell;
  }
  if (end < cells.size()) return text + "  …";
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

}  // namespace

uint32_t WeightCellBits(const PackRequest& request) {
  return CodeBits(request.scheme.code);
}

void FillCells(uint32_t cell_bits, uint64_t first, const PanelRange& near,
               const std::function<uint64_t(uint64_t n, uint64_t k)>& bit_of,
               std::vector<WeightCell>& cells) {
  const uint64_t end = first * 8 + cells.size() * cell_bits;
  for (uint64_t n = near.n0; n < near.n0 + near.rows; ++n) {
    for (uint64_t k = near.k0; k < near.k0 + near.cols; ++k) {
      const uint64_t bit = bit_of(n, k);
      if (bit < first * 8 || bit >= end) continue;
      WeightCell& cell = cells[(bit - first * 8) / cell_bits];
      if (!cell) cell = {.n = n, .k = k};  // the first, where a cell holds several
    }
  }
}

std::vector<WeightCell> WeightCells(const Layout& layout, const PackRequest& request,
                                    uint64_t first, uint64_t bytes) {
  const uint32_t cell_bits = WeightCellBits(request);
  std::vector<WeightCell> cells(bytes * 8 / cell_bits);
  const PanelRange all{.n0 = 0, .rows = request.n, .k0 = 0, .cols = request.k};
  FillCells(
      cell_bits, first, all,
      [&](uint64_t n, uint64_t k) { return layout.weight_bit(request, n, k); }, cells);
  return cells;
}

std::vector<uint64_t> ConsecutiveRows(uint64_t cells) {
  std::vector<uint64_t> begins;
  for (uint64_t begin = 0; begin < cells; begin += kRowCells) begins.push_back(begin);
  return begins;
}

std::string DrawCells(const std::vector<WeightCell>& cells, uint32_t cell_bits,
                      const std::vector<uint64_t>& begins, const PaintCell& paint) {
  const uint64_t byte_cells = cell_bits < 8 ? 8 / cell_bits : 1;
  const size_t digits = fmt::formatted_size("{}", begins.back() * cell_bits / 8);
  size_t width = 0;
  for (const uint64_t begin : begins) {
    const uint64_t end = std::min<uint64_t>(begin + kRowCells, cells.size());
    for (uint64_t i = begin; i < end; ++i) {
      if (cells[i]) width = std::max(width, CellText(cells[i]).size());
    }
  }
  std::string text;
  for (const uint64_t begin : begins) {
    text += fmt::format("byte {:<{}}{}\n", begin * cell_bits / 8, digits,
                        RowText(cells, begin, byte_cells, width, paint));
  }
  return text;
}

std::string DrawWeight(const Layout& layout, const PackRequest& request) {
  const std::vector<PartSpec> parts = layout.Parts(request);
  const PartSpec& weight = *FindPart(parts, PartRole::kWeight);
  const std::vector<WeightCell> cells =
      WeightCells(layout, request, 0, TensorBytes(weight.dtype, weight.shape).value());
  const uint32_t cell_bits = WeightCellBits(request);
  const uint64_t byte_cells = cell_bits < 8 ? 8 / cell_bits : 1;
  return DrawCells(cells, cell_bits, RowBegins(cells, byte_cells));
}

PackRequest DrawnExample(const Layout& layout) {
  constexpr uint64_t kInputs = 256;
  constexpr uint64_t kGroup = 64;
  constexpr uint64_t kBlockRows = 64;  // no layout has units of so many
  PackRequest request;
  request.k = kInputs;
  SetModuleKind(layout, request);
  for (const uint64_t outputs : {uint64_t{100}, uint64_t{96}}) {
    request.n = outputs;
    for (const Scheme& scheme : ProbeSchemes(outputs, kInputs, kGroup)) {
      request.scheme = scheme;
      if (scheme.granularity == Granularity::kBlock) request.scheme.scale_rows = kBlockRows;
      if (layout.eligible(request).ok) return request;
    }
  }
  return request;  // not reached: tests draw every layout
}

}  // namespace prepack
