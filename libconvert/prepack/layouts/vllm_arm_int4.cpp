// vllm-arm/int4-w4a8: W4A8 for torch.ops.aten._dyn_quant_matmul_4bit, which runs KleidiAI's kernels
// on Arm CPUs, with activations quantized per token, with a zero point, by the op. What vLLM makes
// of symmetric 4-bit weights at every start, by torch.ops.aten._dyn_quant_pack_4bit_weight. Mirrors
// KleidiAI's pack/kai_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0.c (groups) and
// pack/kai_rhs_pack_nxk_qsi4cxp_qs4cxs1s0.c (channels) with nr 8, kr 16, sr 2, as PyTorch 2.10.0
// calls them (aten/src/ATen/native/kleidiai), and vLLM 0.32.0,
// vllm/model_executor/kernels/linear/mixed_precision/dynamic_4bit.py.
//
// weight, U8 [⌈N/8⌉, S]: of every 8 output channels one record with all that the kernel needs. The
// last record is filled up with copies of the last channel. In a record, for every 32 input
// channels 8 bytes of each output channel with the first 8 of them in the low halves and those 16
// further in the high ones, then 8 bytes of each with the next 8:
//
//     byte   0           1           …  8           …  64           …  128
//            n0k0 n0k16  n0k1 n0k17  …  n1k0 n1k16  …  n0k8 n0k24   …  n0k32 n0k48   …
//
// in two's complement, which is code XOR 8. Where a channel has one scale, K is filled up to K32, a
// multiple of 32, with zeros, and behind all codes stand, for each of the 8 channels,
//
//     i32 16 · Σ (code − 8),   f32 scale / 16,   f32 bias
//
// Where it has groups, 8 scales in bf16 follow the codes of each group, and in the end stand
//
//     f32 Σ (code − 8) · scale,   f32 bias
//
// the sum in f32, of 16 input channels at a time: (k, k + 16) for 8 neighbouring k. Without a bias
// zeros stand there. `bias`, f32 [N], is stored once more by itself, as the layer of the runtime
// has it; the op does not read it.

#include <algorithm>
#include <array>
#include <cstring>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/kernels/kernels.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kRecordRows = kNibbleStepRows;  // output channels
constexpr uint64_t kStepInputs = kNibbleStepCols;  // whose codes are interleaved
constexpr uint64_t kStepBytes = kNibbleStepBytes;
constexpr uint64_t kRowRun = 8;     // bytes of a channel that lie side by side
constexpr uint64_t kHighHalf = 16;  // input channels between the halves of a byte
constexpr uint64_t kSegmentBytes = kRecordRows * kRowRun;  // half a step: 16 input channels
constexpr uint8_t kZeroCodes = 0x88;                       // two of them, in a panel
constexpr uint64_t kColumn = kRecordRows * sizeof(float);  // of sums, scales, biases

// Nibble p of the codes of a group is in byte p / 2, the low half when p is even.
constexpr uint64_t GroupNibble(uint64_t row, uint64_t k) {
  const uint64_t byte = k / kStepInputs * kStepBytes + k % kHighHalf / kRowRun * kSegmentBytes +
                        row * kRowRun + k % kRowRun;
  return 2 * byte + k % kStepInputs / kHighHalf;
}

static_assert(GroupNibble(0, 0) == 0);
static_assert(GroupNibble(0, 16) == 1);  // the other half of the byte
static_assert(GroupNibble(0, 1) == 2);
static_assert(GroupNibble(1, 0) == 16);
static_assert(GroupNibble(0, 8) == 128);  // after 8 bytes of each channel
static_assert(GroupNibble(7, 31) == 255);
static_assert(GroupNibble(0, 32) == 256);

bool HasGroups(const PackRequest& request) {
  return request.groups() > 1;
}

// Bytes of a record.

uint64_t CodeBytes(uint64_t inputs) {
  return CeilDiv(inputs, kStepInputs) * kStepBytes;
}

uint64_t GroupBytes(const PackRequest& request) {
  return CodeBytes(request.scheme.group_size) + kRecordRows * sizeof(uint16_t);
}

// Where what follows the codes begins.
uint64_t TailBegin(const PackRequest& request) {
  return HasGroups(request) ? request.groups() * GroupBytes(request) : CodeBytes(request.k);
}

uint64_t RecordBytes(const PackRequest& request) {
  return TailBegin(request) + (HasGroups(request) ? 2 : 3) * kColumn;
}

uint64_t CodesBegin(const PackRequest& request, uint64_t k) {
  return HasGroups(request) ? k / request.scheme.group_size * GroupBytes(request) : 0;
}

Eligibility SymmetricOrOther(const PackRequest& request) {
  if (request.scheme.symmetric) return Eligibility::Yes();
  return Eligibility::No(
      "the weights have zero points: the kernel takes symmetric weights only, and vLLM has no "
      "other for 4 bits on Arm (--fallback dequantize makes bf16 of them)");
}

Eligibility GroupsOfSteps(const PackRequest& request) {
  if (!HasGroups(request)) return Eligibility::Yes();
  return MultipleOf("the group size", request.scheme.group_size, kStepInputs,
                    "the kernel multiplies 32 input channels at a time");
}

Eligibility RecordsOfOneExpert(const PackRequest& request) {
  if (!request.expert()) return Eligibility::Yes();
  return MultipleOf("N", request.n, kRecordRows,
                    "the experts of a layer are packed one after another, 8 output channels at a "
                    "time");
}

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      FourBitCodes(request),
      Int8ActivationsPerToken(request),
      SymmetricOrOther(request),
      ScalesPerChannelOrGroup(request),
      MultipleOf("K", request.k, 2, "the packer takes two codes per byte"),
      GroupsDivideK(request),
      GroupsOfSteps(request),
      RecordsOfOneExpert(request),
      ActivationsOneOf(request, {DType::kBF16, DType::kF16, DType::kF32}),
      BiasIsFloat(request),
  });
}

TileCut Cut(const PackRequest& request) {
  return {.rows = kRecordRows,
          .cols = HasGroups(request) ? request.scheme.group_size : kStepInputs,
          .strip_rows = kRecordRows};
}

uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  const uint64_t byte = n / kRecordRows * RecordBytes(request) + CodesBegin(request, k);
  return 8 * byte + 4 * GroupNibble(n % kRecordRows, k % request.scheme.group_size);
}

Placement PlaceWeight(const PackRequest& request, const PanelRange& tile) {
  return {{.offset = tile.n0 / kRecordRows * RecordBytes(request),
           .bytes = CeilDiv(tile.rows, kRecordRows) * RecordBytes(request)}};
}

// Those of at most one record.
Placement PlaceScales(const PackRequest& request, uint64_t n0, uint64_t rows) {
  const uint64_t record = n0 / kRecordRows * RecordBytes(request);
  if (!HasGroups(request)) {
    return {{.offset = record + TailBegin(request) + kColumn, .bytes = rows * sizeof(float)}};
  }
  return {{.offset = record + CodeBytes(request.scheme.group_size),
           .bytes = rows * sizeof(uint16_t),
           .count = request.groups(),
           .stride = GroupBytes(request)}};
}

float ScaleFactor(const PackRequest& request) {
  return HasGroups(request) ? 1.0F : 0.0625F;
}

// One record while a panel of it is packed.
struct Record {
  const PackJob& job;
  const std::byte* codes;  // of the panel
  uint64_t row_bytes;      // of the panel
  uint64_t first;          // row of the tile
  uint64_t rows;           // of the record, in the tile
  std::byte* bytes;        // of the record

  // The row of the tile that stands in row `row` of the record.
  uint64_t RowOf(uint64_t row) const { return first + std::min(row, rows - 1); }
};

template <typename T>
using Column = std::array<T, kRecordRows>;

template <typename T>
Column<T> LoadColumn(const Record& record, uint64_t at) {
  Column<T> column;
  std::memcpy(column.data(), record.bytes + at, sizeof column);
  return column;
}

template <typename T>
void StoreColumn(const Record& record, uint64_t at, const Column<T>& column) {
  std::memcpy(record.bytes + at, column.data(), sizeof column);
}

// The scales of a group, stored and as the kernel has them.
Column<float> PackGroupScales(const Record& record, uint64_t group) {
  const PackRequest& request = record.job.request;
  Column<float> scales;
  Column<uint16_t> stored;
  for (uint64_t row = 0; row < kRecordRows; ++row) {
    stored[row] = F32ToBF16(record.job.scales[record.RowOf(row) * request.groups() + group]);
    scales[row] = BF16ToF32(stored[row]);
  }
  StoreColumn(record, group * GroupBytes(request) + CodeBytes(request.scheme.group_size), stored);
  return scales;
}

// All that is not codes, of the panel at the start of K; sums begin at zero.
void PackTail(const Record& record) {
  const PackRequest& request = record.job.request;
  uint64_t at = TailBegin(request);
  StoreColumn(record, at, Column<int32_t>{});
  at += kColumn;
  Column<float> column{};
  if (!HasGroups(request)) {
    for (uint64_t row = 0; row < kRecordRows; ++row) {
      column[row] = record.job.scales[record.RowOf(row)] * ScaleFactor(request);
    }
    StoreColumn(record, at, column);
    at += kColumn;
  }
  column = {};
  for (uint64_t row = 0; row < kRecordRows && !record.job.bias.empty(); ++row) {
    column[row] = record.job.bias[record.RowOf(row)];
  }
  StoreColumn(record, at, column);
}

// The whole steps of a panel, and the bytes of each row behind them: only the last panel of
// channels has some.
StepGroups WholeSteps(const PackJob& job) {
  const uint64_t group_size = job.request.scheme.group_size;
  const bool groups = HasGroups(job.request);
  return {.steps = (groups ? group_size : job.panel.cols) / kStepInputs,
          .groups = groups ? job.panel.cols / group_size : 1,
          .stride = groups ? GroupBytes(job.request) : 0};
}

uint64_t RestBytes(const PackJob& job) {
  return HasGroups(job.request) ? 0 : job.panel.cols % kStepInputs / 2;
}

// Where the codes of the panel begin in a record.
uint64_t PanelBegin(const PackJob& job) {
  return CodesBegin(job.request, job.panel.k0) +
         job.panel.k0 % job.request.scheme.group_size / kStepInputs * kStepBytes;
}

Column<const uint8_t*> RowsFrom(const Record& record, uint64_t byte) {
  Column<const uint8_t*> rows;
  for (uint64_t row = 0; row < kRecordRows; ++row) {
    rows[row] = U8(record.codes + std::min(row, record.rows - 1) * record.row_bytes + byte);
  }
  return rows;
}

// Sums are the packer's own, to the order of additions: f32 depends on it.
void PackGroups(const Record& record) {
  constexpr uint64_t kMostGroups = 64;  // whose scales are at hand at a time
  const PackJob& job = record.job;
  const StepGroups whole = WholeSteps(job);
  const uint64_t first = job.panel.k0 / job.request.scheme.group_size;
  const uint64_t tail = TailBegin(job.request);
  auto totals = LoadColumn<float>(record, tail);
  std::array<Column<float>, kMostGroups> scales;
  StepGroups some = whole;
  for (uint64_t group = 0; group < whole.groups; group += some.groups) {
    some.groups = std::min(kMostGroups, whole.groups - group);
    for (uint64_t i = 0; i < some.groups; ++i) {
      scales[i] = PackGroupScales(record, first + group + i);
    }
    const auto rows = RowsFrom(record, group * whole.steps * kNibbleStepRowBytes);
    Kernels().rows_to_scaled_steps(rows.data(), some, scales.front().data(),
                                   U8(record.bytes + PanelBegin(job) + group * whole.stride),
                                   totals.data());
  }
  StoreColumn(record, tail, totals);
}

void PackChannels(const Record& record) {
  constexpr uint32_t kStoredFactor = 16;
  const PackJob& job = record.job;
  const StepGroups whole = WholeSteps(job);
  std::byte* to = record.bytes + PanelBegin(job);
  Column<int32_t> sums{};
  Kernels().rows_to_steps(RowsFrom(record, 0).data(), whole, U8(to), sums.data());
  if (const uint64_t bytes = RestBytes(job); bytes != 0) {
    Column<std::array<uint8_t, kNibbleStepRowBytes>> rest;
    Column<const uint8_t*> rows = RowsFrom(record, whole.steps * kNibbleStepRowBytes);
    for (uint64_t row = 0; row < kRecordRows; ++row) {
      rest[row].fill(kZeroCodes);
      std::memcpy(rest[row].data(), rows[row], bytes);
      rows[row] = rest[row].data();
    }
    Kernels().rows_to_steps(rows.data(), {}, U8(to + whole.steps * kStepBytes), sums.data());
  }
  const uint64_t tail = TailBegin(job.request);
  auto totals = LoadColumn<uint32_t>(record, tail);
  for (uint64_t row = 0; row < kRecordRows; ++row) {
    totals[row] += static_cast<uint32_t>(sums[row]) * kStoredFactor;
  }
  StoreColumn(record, tail, totals);
}

// Calls work(first row of the panel, rows, where the record begins in the tile).
template <typename Work>
void ForRecords(const PackJob& job, const Work& work) {
  const uint64_t first = job.panel.n0 - job.tile.n0;
  for (uint64_t row = 0; row < job.panel.rows; row += kRecordRows) {
    work(row, std::min(kRecordRows, job.panel.rows - row),
         (first + row) / kRecordRows * RecordBytes(job.request));
  }
}

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  const uint64_t row_bytes = PanelRowBytes(CodeType::kU4, job.panel.cols);
  ForRecords(job, [&](uint64_t row, uint64_t rows, uint64_t begin) {
    const Record record{.job = job,
                        .codes = codes.subspan(row * row_bytes).data(),
                        .row_bytes = row_bytes,
                        .first = job.panel.n0 - job.tile.n0 + row,
                        .rows = rows,
                        .bytes = packed.subspan(begin, RecordBytes(job.request)).data()};
    if (job.panel.k0 == 0) PackTail(record);
    HasGroups(job.request) ? PackGroups(record) : PackChannels(record);
  });
}

// `bytes` of each of `rows` channels, of one step.
void UnpackStep(const std::byte* step, uint64_t rows, uint64_t bytes, uint64_t row_bytes,
                std::byte* codes) {
  Column<std::array<uint8_t, kNibbleStepRowBytes>> unpacked;
  Column<uint8_t*> to;
  for (uint64_t row = 0; row < kRecordRows; ++row) to[row] = unpacked[row].data();
  Kernels().steps_to_rows(U8(step), {}, to.data());
  for (uint64_t row = 0; row < rows; ++row) std::memcpy(codes + row * row_bytes, to[row], bytes);
}

// Of a record whose last rows are copies, which have no place in a panel.
void UnpackFewRows(const std::byte* record, const StepGroups& whole, uint64_t rows,
                   uint64_t row_bytes, std::byte* codes) {
  for (uint64_t group = 0; group < whole.groups; ++group) {
    for (uint64_t i = 0; i < whole.steps; ++i, codes += kNibbleStepRowBytes) {
      UnpackStep(record + group * whole.stride + i * kStepBytes, rows, kNibbleStepRowBytes,
                 row_bytes, codes);
    }
  }
}

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  const uint64_t row_bytes = PanelRowBytes(CodeType::kU4, job.panel.cols);
  const StepGroups whole = WholeSteps(job);
  ForRecords(job, [&](uint64_t row, uint64_t rows, uint64_t begin) {
    const std::byte* record = packed.data() + begin + PanelBegin(job);
    std::byte* to = codes.data() + row * row_bytes;
    if (rows == kRecordRows) {
      Column<uint8_t*> all;
      for (uint64_t i = 0; i < kRecordRows; ++i) all[i] = U8(to + i * row_bytes);
      Kernels().steps_to_rows(U8(record), whole, all.data());
    } else {
      UnpackFewRows(record, whole, rows, row_bytes, to);
    }
    if (const uint64_t bytes = RestBytes(job); bytes != 0) {
      UnpackStep(record + whole.steps * kStepBytes, rows, bytes, row_bytes,
                 to + whole.steps * kNibbleStepRowBytes);
    }
  });
}

constexpr StoredDType kScaleDType{"BF16; F32 with one per channel", [](const PackRequest& r) {
                                    return HasGroups(r) ? DType::kBF16 : DType::kF32;
                                  }};

}  // namespace

constinit const Layout kVllmArmInt4W4A8 = {
    .id = "vllm-arm/int4-w4a8",
    .version = 1,
    .target = "vllm-arm",
    .consumer = "torch.ops.aten._dyn_quant_matmul_4bit",
    .mirrors = "KleidiAI in PyTorch 2.10.0, aten/src/ATen/native/kleidiai/kai_pack.h",
    .schemes = "w4a8 with dynamic activations, symmetric weights, group or channel",
    .constraints =
        "K even, groups of a multiple of 32 that divide K, bf16, f16 or f32 activations; experts "
        "with N % 8 = 0",
    .isa = "Arm with DOTPROD; I8MM makes it fast",
    .needs = {CpuFeature::kDotprod},
    .wants = {CpuFeature::kI8mm},
    .address =
        "b = group or K, B = 4 · ⌈b/32⌉ · 32 and 16 more for groups: byte (n / 8) · S + "
        "(k / b) · B + (k % b / 32) · 128 + (k % 16 / 8) · 64 + (n % 8) · 8 + k % 8, low half when "
        "k % b / 16 is even",
    .notes =
        "the weight also holds scales, sums and bias of every 8 channels; the op quantizes "
        "activations with a zero point, whatever the checkpoint says",
    .fingerprint = "72c83fe3c9efc1bfde6851d9eaf59b6b",
    .stacks_experts = true,
    .eligible = Eligible,
    .weight = {.dtype = DType::kU8,
               .shape = {{"⌈N/8⌉", [](const PackRequest& r) { return CeilDiv(r.n, kRecordRows); }},
                         {"S: G · (4 gs + 16) + 64; of channels 4 K32 + 96", RecordBytes}},
               .by_outputs = DivisionRow::Along(0, kRecordRows),
               .by_inputs = DivisionRow::Never()},  // the sums are over all of K
    .scales = {.order = ParameterOrder::kInWeight,
               .value = kScaleDType,
               .stored = kScaleDType,
               .factor = ScaleFactor,
               .place_in_weight = PlaceScales},
    .cut = Cut,
    .weight_bit = WeightBit,
    .place_weight = PlaceWeight,
    .weight_has_extras = true,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
};

}  // namespace prepack
