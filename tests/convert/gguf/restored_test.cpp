// GGUF files seen as checkpoints: rows found again, and blocks in the canonical layout.

#include "prepack/convert/gguf/restored.h"

#include <algorithm>
#include <random>
#include <set>

#include "catch.h"
#include "prepack/convert/gguf/block_linear.h"
#include "prepack/convert/source.h"
#include "prepack/gguf/blocks.h"
#include "prepack/gguf/model.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/packed/packed_model.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

using gguf::GgmlType;

// Loops as heads, stacks and alternating rows make them: a permutation of some rows, cut into
// dimensions that change places.
gguf::RowPiece RandomPiece(std::mt19937& random) {
  const auto any = [&](uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(1, most)(random);
  };
  gguf::RowPiece piece{.source = 0, .first = any(50), .loops = {}};
  int64_t step = static_cast<int64_t>(any(3));
  std::vector<gguf::RowLoop> loops;
  for (uint64_t i = any(4); i > 0; --i) {
    const uint64_t count = any(5);
    loops.push_back({count, step});
    step *= static_cast<int64_t>(count + any(2) - 1);
  }
  std::shuffle(loops.begin(), loops.end(), random);
  for (gguf::RowLoop& loop : loops) {
    if (any(4) == 1) {
      piece.first += (loop.count - 1) * static_cast<uint64_t>(loop.step);
      loop.step = -loop.step;
    }
    piece.loops.push_back(loop);
  }
  return piece;
}

TEST_CASE("rows of the checkpoint are found in a piece") {
  std::mt19937 random(46);
  for (int round = 0; round < 500; ++round) {
    const gguf::RowPiece piece = RandomPiece(random);
    const auto inverse = gguf::InversePiece::Of(piece);
    REQUIRE(inverse.has_value());
    std::set<uint64_t> rows;
    for (uint64_t index = 0; index < piece.rows(); ++index) {
      rows.insert(piece.Row(index));
      REQUIRE(inverse->Find(piece.Row(index)) == index);
    }
    for (uint64_t row = 0; row < *rows.rbegin() + 5; ++row) {
      REQUIRE(inverse->Find(row).has_value() == rows.contains(row));
    }
  }
}

TEST_CASE("pieces that have a row twice cannot be turned round") {
  const auto of = [](std::initializer_list<gguf::RowLoop> loops) {
    gguf::RowPiece piece{.source = 0, .first = 9, .loops = {}};
    for (const gguf::RowLoop& loop : loops) piece.loops.push_back(loop);
    return gguf::InversePiece::Of(piece).has_value();
  };
  CHECK(of({}));
  CHECK(of({{3, 1}, {1, 0}}));
  CHECK_FALSE(of({{3, 0}}));
  CHECK_FALSE(of({{3, 1}, {2, 2}}));
  CHECK_FALSE(of({{3, 1}, {2, -1}}));
  CHECK(of({{3, 1}, {2, -3}}));
}

// The tensor's weights as the package gguf decodes them.
std::vector<float> TruthOf(const gguf::Model& truth, const std::string& name) {
  const gguf::Tensor* tensor = truth.FindTensor(name);
  REQUIRE(tensor != nullptr);
  std::vector<float> weights(tensor->bytes / sizeof(float));
  RequireOk(truth.Visit(*tensor, 0, tensor->bytes, [&](const std::byte* bytes) {
    gguf::Dequantize(GgmlType::kF32, {bytes, static_cast<size_t>(tensor->bytes)}, weights);
  }));
  return weights;
}

uint64_t StoredNumber(const Checkpoint& checkpoint, const StoredBits& bits) {
  uint64_t number = 0;
  uint32_t shift = 0;
  for (const BitRun& run : bits) {
    std::array<std::byte, 2> bytes{};
    const StoredTensor& tensor = *checkpoint.Find(run.tensor);
    const uint64_t byte = run.bit / 8;
    RequireOk(
        checkpoint.Read(tensor, byte, std::span(bytes).first(run.bit % 8 + run.bits > 8 ? 2 : 1)));
    const auto word = static_cast<unsigned>(bytes[0]) | static_cast<unsigned>(bytes[1]) << 8;
    number |= uint64_t{word >> run.bit % 8 & ((1U << run.bits) - 1)} << shift;
    shift += run.bits;
  }
  return number;
}

TEST_CASE("blocks in the canonical layout have the weights that the Python package decodes") {
  const Checkpoint checkpoint = Value(OpenSource(Fixture("gguf/blocks.gguf"), {.look = true}));
  const QuantizedModel model = Value(ReadSourceModel(checkpoint));
  const gguf::Model truth = Value(gguf::Model::Open(Fixture("gguf/truth.gguf")));
  std::set<std::string> seen;
  for (const auto& linear : model.modules) {
    INFO(linear->module());
    const std::vector<float> expected = TruthOf(truth, std::string(linear->module()));
    const uint64_t k = linear->k();
    REQUIRE(expected.size() == linear->n() * k);
    DequantizeBuffers buffers;
    std::vector<float> weights(k);
    for (uint64_t n = 0; n < linear->n(); ++n) {
      const Status status = DequantizeRows(*linear, n, 1, buffers, weights);
      if (!status.ok()) continue;  // random bits: a scale of zero, or a minimum that means nothing
      seen.emplace(linear->module());
      for (uint64_t i = 0; i < k; ++i) REQUIRE(weights[i] == expected[n * k + i]);
    }
  }
  for (const char* name : {"Q4_0.quantized", "Q5_0.quantized", "Q8_0.quantized", "MXFP4.quantized",
                           "MXFP4.bits", "NVFP4.bits", "Q4_1.quantized", "Q5_1.quantized"}) {
    CHECK(seen.contains(name));
  }
}

TEST_CASE("panels of any columns are cut from whole blocks, and codes lie where they are said to") {
  const Checkpoint checkpoint = Value(OpenSource(Fixture("gguf/blocks.gguf"), {.look = true}));
  const QuantizedModel model = Value(ReadSourceModel(checkpoint));
  for (const auto& linear : model.modules) {
    if (linear->places() == nullptr) continue;
    INFO(linear->module());
    const CodeType code = linear->scheme().code;
    const PanelRange all{.n0 = 0, .rows = linear->n(), .k0 = 0, .cols = linear->k()};
    std::vector<std::byte> whole(PanelBytes(code, all));
    RequireOk(linear->ReadCodes(all, whole));
    const PanelRange some{.n0 = 1, .rows = 2, .k0 = 34, .cols = 300};
    std::vector<std::byte> part(PanelBytes(code, some));
    RequireOk(linear->ReadCodes(some, part));
    for (uint64_t row = 0; row < some.rows; ++row) {
      for (uint64_t col = 0; col < some.cols; ++col) {
        const uint64_t n = some.n0 + row;
        const uint64_t k = some.k0 + col;
        const uint8_t found = PanelCode(code, whole, all.cols, n, k);
        REQUIRE(PanelCode(code, part, some.cols, row, col) == found);
        const StoredBits where = linear->places()->WhereCode(n, k);
        REQUIRE(StoredNumber(checkpoint, where) == found);
        const PanelRange near = linear->places()->CodesNear(where[0].bit / 8);
        REQUIRE((near.n0 == n && near.k0 <= k && k < near.k0 + near.cols));
      }
    }
    std::vector<std::byte> short_buffer(1);
    CHECK_FALSE(linear->ReadCodes(all, short_buffer).ok());
  }
}

}  // namespace
}  // namespace prepack::testing
