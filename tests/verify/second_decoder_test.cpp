// Second decoders on small checkpoints: what real ones do not show, and what cannot be decoded.

#include "prepack/verify/second/decoder.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/ct_example.h"
#include "prepack/container/checkpoint.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/second_weights.h"

namespace prepack::testing {
namespace {

using Floats = std::vector<float>;

// Rows of a checkpoint of one module, decoded.
Floats Decode(const TestCheckpoint& checkpoint, const std::string& format, uint64_t k, uint64_t n0,
              uint64_t rows) {
  TempFolder temp;
  checkpoint.Write(temp.path());
  const Checkpoint source = Value(Checkpoint::Open(temp.path()));
  return SecondWeights(Value(SecondDecoder::Make(source, format)), kExampleModule, k, n0, rows);
}

// What decoding the first row gives.
Status StatusOf(const TestCheckpoint& checkpoint, const std::string& format, uint64_t k) {
  TempFolder temp;
  checkpoint.Write(temp.path());
  const Checkpoint source = Value(Checkpoint::Open(temp.path()));
  DecodedRows decoded;
  return Value(SecondDecoder::Make(source, format)).Decode(kExampleModule, k, 0, 1, decoded);
}

TestCheckpoint CtStored(const Json& quantization, std::vector<TestTensor> tensors) {
  TestCheckpoint checkpoint;
  checkpoint.config = {{"quantization_config", quantization}};
  for (TestTensor& tensor : tensors) tensor.name = kExampleModule + "." + tensor.name;
  checkpoint.tensors = std::move(tensors);
  return checkpoint;
}

// Are the steps of the first row delivered as bytes to whoever takes these?
bool AreSmall(const TestCheckpoint& checkpoint, uint64_t k) {
  TempFolder temp;
  checkpoint.Write(temp.path());
  const Checkpoint source = Value(Checkpoint::Open(temp.path()));
  DecodedRows decoded;
  decoded.takes_small = true;
  RequireOk(Value(SecondDecoder::Make(source, "compressed-tensors"))
                .Decode(kExampleModule, k, 0, 1, decoded));
  CHECK(decoded.rows() == 1);
  CHECK(decoded.steps.empty() != decoded.small.empty());
  return decoded.steps.empty();
}

TEST_CASE("steps that fit into a byte are delivered so") {
  CHECK(AreSmall(AsymmetricExample(), 16));
  std::vector<TestTensor> bytes = {{"weight", "I8", {1, 4}, Hex("01 80 7f ff")},
                                   {"weight_scale", "F32", {1, 1}, Hex("0000803f")}};
  CHECK(AreSmall(CtStored(Json::object(), bytes), 4));
  bytes.push_back({"weight_zero_point", "I8", {1, 1}, Hex("7f")});
  CHECK_FALSE(AreSmall(CtStored(Json::object(), bytes), 4));  // −128 − 127
}

TEST_CASE("rows that do not start at a word of zero points are decoded right") {
  CHECK(Decode(AsymmetricExample(), "compressed-tensors", 16, 2, 1) ==
        Floats{0.25F, 0, 0.375F, -0.125F, 0.5F, -0.25F, 0.625F, -0.375F, 0.1875F, -0.4375F, 0.25F,
               -0.5F, 0.3125F, -0.5625F, -0.125F, -0.625F});
}

// One row of 3-bit codes, all of them in turn.
TestCheckpoint ThreeBits(uint64_t words, const std::string& codes) {
  return CtStored({{"config_groups", {{"g", {{"weights", {{"num_bits", 3}}}}}}}},
                  {{"weight_packed", "I32", {1, words}, Hex(codes)},
                   {"weight_scale", "F32", {1, 1}, Hex("0000803f")}});
}

TEST_CASE("codes of three bits may cross words or not, as the number of words says") {
  Floats expected;
  for (int k = 0; k < 32; ++k) expected.push_back(static_cast<float>(k % 8 - 4));
  CHECK(Decode(ThreeBits(3, "88c6fa 88c6fa 88c6fa 88c6fa"), "compressed-tensors", 32, 0, 1) ==
        expected);
  CHECK(Decode(ThreeBits(4, "88c6fa08 1aeb231a ac8f682c 3e000000"), "compressed-tensors", 32, 0,
               1) == expected);
  CheckError(StatusOf(ThreeBits(2, "88c6fa 88c6fa 0000"), "compressed-tensors", 11),
             ErrorKind::kUnsupported, "cannot tell how many bits the codes have");
}

TEST_CASE("a last group may be short, and the config says how long the others are") {
  TestCheckpoint checkpoint =
      CtStored({{"config_groups", {{"g", {{"weights", {{"group_size", 4}}}}}}}},
               {{"weight", "I8", {1, 6}, Hex("01 02 03 04 05 ff")},
                {"weight_scale", "BF16", {1, 2}, Hex("803f 0040")}});
  CHECK(Decode(checkpoint, "compressed-tensors", 6, 0, 1) == Floats{1, 2, 3, 4, 10, -2});
  checkpoint.config = Json::object();  // then they are as long as each other
  CHECK(Decode(checkpoint, "compressed-tensors", 6, 0, 1) == Floats{1, 2, 3, 8, 10, -2});
}

TEST_CASE("signed zero points of signed bytes are taken off") {
  const TestCheckpoint checkpoint =
      CtStored({}, {{"weight", "I8", {2, 2}, Hex("01 02 83 7f")},
                    {"weight_zero_point", "I8", {2, 1}, Hex("ff 05")},
                    {"weight_scale", "BF16", {2, 1}, Hex("803f 0040")}});
  CHECK(Decode(checkpoint, "compressed-tensors", 2, 0, 2) == Floats{2, 3, -260, 244});
}

TEST_CASE("blocks of FP8 may be cut off at both edges") {
  // Blocks of 2 by 2 on 3 by 3; codes 1.0 (38) and -2.0 (c0), 2^-9 (01).
  const TestCheckpoint checkpoint =
      CtStored({{"weight_block_size", {2, 2}}},
               {{"weight", "F8_E4M3", {3, 3}, Hex("38 38 c0  38 38 01  c0 38 38")},
                {"weight_scale_inv", "F32", {2, 2}, Hex("0000803f 00000040 00004040 00008040")}});
  CHECK(Decode(checkpoint, "fp8", 3, 0, 3) == Floats{1, 1, -4, 1, 1, 0.00390625F, -6, 3, 4});
  CHECK(Decode(checkpoint, "fp8", 3, 2, 1) == Floats{-6, 3, 4});
}

TEST_CASE("one scale may be for the whole module") {
  for (const std::vector<uint64_t>& shape : std::vector<std::vector<uint64_t>>{{}, {1}, {1, 1}}) {
    CHECK(Decode(CtStored({}, {{"weight", "F8_E4M3", {2, 2}, Hex("38 40 44 c0")},
                               {"weight_scale", "F32", shape, Hex("0000003f")}}),
                 "fp8", 2, 0, 2) == Floats{0.5F, 1, 1.5F, -1});
  }
}

// GPTQ, 4 bits, K = 8, N = 8 with the codes k in every column but for those of column 1, 7 - k.
TestCheckpoint SmallGptqCheckpoint(const Json& quantization, const std::string& g_idx) {
  std::vector<TestTensor> tensors = {
      {"qweight",
       "I32",
       {1, 8},
       Hex("10325476 67452301 10325476 10325476 10325476 10325476 10325476 10325476")},
      {"qzeros", "I32", {2, 1}, Hex("77777777 10ffffff")},
      {"scales",
       "F16",
       {2, 8},
       Hex("003c003c003c003c003c003c003c003c 0040004000400040004000400040 0040")}};
  if (!g_idx.empty()) tensors.push_back({"g_idx", "I32", {8}, Hex(g_idx)});
  return CtStored(quantization, tensors);
}

TEST_CASE("groups of GPTQ follow the index where it says something") {
  const Json symmetric = {{"sym", true}, {"group_size", 4}};
  const std::string zeros(64, '0');
  const Floats natural = {-8, -7, -6, -5, -8, -6, -4, -2};
  CHECK(Decode(SmallGptqCheckpoint(symmetric, ""), "gptq", 8, 0, 1) == natural);
  CHECK(Decode(SmallGptqCheckpoint(symmetric, zeros), "gptq", 8, 0, 1) == natural);
  CHECK(Decode(SmallGptqCheckpoint(symmetric, std::string(64, 'f')), "gptq", 8, 0, 1) == natural);
  // Groups 1 0 1 0 1 0 1 0, some counted from the end.
  const std::string scattered =
      "01000000 00000000 ffffffff feffffff 01000000 00000000 01000000 00000000";
  CHECK(Decode(SmallGptqCheckpoint(symmetric, scattered), "gptq", 8, 0, 1) ==
        Floats{-16, -7, -12, -5, -8, -3, -4, -1});
  for (const char* bad : {"02000000", "fdffffff"}) {
    CheckError(StatusOf(SmallGptqCheckpoint(symmetric, scattered.substr(0, 63) + bad), "gptq", 8),
               ErrorKind::kMalformed, "a group index is out of range");
  }
}

TEST_CASE("keys of a GPTQ config are taken in any case, as GPTQModel takes them") {
  const Json lower = {{"sym", false}, {"group_size", 4}, {"checkpoint_format", "gptq_v2"}};
  const Json upper = {{"SYM", false}, {"Group_Size", 4}, {"CHECKPOINT_FORMAT", "gptq_v2"}};
  const Floats weights = Decode(SmallGptqCheckpoint(lower, ""), "gptq", 8, 1, 1);
  CHECK(Decode(SmallGptqCheckpoint(upper, ""), "gptq", 8, 1, 1) == weights);
  CHECK(Decode(SmallGptqCheckpoint({{"sym", true}, {"group_size", 4}}, ""), "gptq", 8, 1, 1) !=
        weights);
}

TEST_CASE("only scales of FP8 may divide") {
  const std::vector<TestTensor> tensors = {{"weight", "F8_E4M3", {1, 2}, Hex("38 40")},
                                           {"weight_scale", "F32", {1}, Hex("00000040")}};
  const TestCheckpoint divides = CtStored({{"weight_scale_semantics", "inverse"}}, tensors);
  CHECK(Decode(divides, "fp8", 2, 0, 1) == Floats{0.5F, 1});
  CHECK(Decode(divides, "compressed-tensors", 2, 0, 1) == Floats{2, 4});
}

TEST_CASE("zero points that are stored one less borrow from each other") {
  // Row 1 of qzeros holds 1 + 0x…ffff10, so that columns 0 and 1 have z = 1 and 2, and 2 to 7 have
  // 0, the first of which borrowed through all of them.
  const Json asymmetric = {{"sym", false}, {"group_size", 4}};
  CHECK(Decode(SmallGptqCheckpoint(asymmetric, ""), "gptq", 8, 0, 1) ==
        Floats{-8, -7, -6, -5, 6, 8, 10, 12});
  CHECK(Decode(SmallGptqCheckpoint(asymmetric, ""), "gptq", 8, 1, 1) ==
        Floats{-1, -2, -3, -4, 2, 0, -2, -4});
}

TEST_CASE("input channels that pad the last group of GPTQ are left out") {
  CHECK(Decode(SmallGptqCheckpoint({{"sym", true}, {"group_size", 4}}, ""), "gptq", 6, 7, 1) ==
        Floats{-8, -7, -6, -5, -8, -6});
}

TEST_CASE(
    "where overrides say of some modules that they are symmetric, the stored zero points count") {
  // 7 in every field of group 0, stored as z - 1, is what symmetric modules have.
  const Json mixed = {
      {"sym", true}, {"group_size", 4}, {"dynamic", {{"lm_head", {{"bits", 8}, {"sym", false}}}}}};
  CHECK(Decode(SmallGptqCheckpoint(mixed, ""), "gptq", 8, 0, 1) ==
        Floats{-8, -7, -6, -5, 6, 8, 10, 12});
  Json all = mixed;
  all["dynamic"]["lm_head"]["sym"] = true;
  CHECK(Decode(SmallGptqCheckpoint(all, ""), "gptq", 8, 0, 1) ==
        Floats{-8, -7, -6, -5, -8, -6, -4, -2});
}

// Two experts of [2, 2] in tensors of three dimensions, with scales of the given shape.
TestCheckpoint Stacked(const std::vector<uint64_t>& scale_shape, const std::string& scales) {
  return CtStored({}, {{"weight", "I8", {2, 2, 2}, Hex("01 02 03 04  05 06 07 f8")},
                       {"weight_scale", "BF16", scale_shape, Hex(scales)}});
}

Floats DecodeExpert(const TestCheckpoint& checkpoint, const std::string& expert) {
  TempFolder temp;
  checkpoint.Write(temp.path());
  const Checkpoint source = Value(Checkpoint::Open(temp.path()));
  const SecondDecoder decoder = Value(SecondDecoder::Make(source, "compressed-tensors"));
  return SecondWeights(decoder, kExampleModule + "." + expert, 2, 0, 2);
}

TEST_CASE("experts that are stacked are matrices of their own") {
  const TestCheckpoint of_channels = Stacked({2, 2, 1}, "803f 0040 803e 003f");
  CHECK(DecodeExpert(of_channels, "0") == Floats{1, 2, 6, 8});
  CHECK(DecodeExpert(of_channels, "1") == Floats{1.25F, 1.5F, 3.5F, -4});
  for (const std::vector<uint64_t>& shape :
       std::vector<std::vector<uint64_t>>{{2}, {2, 1}, {2, 1, 1}}) {
    CHECK(DecodeExpert(Stacked(shape, "803f 0040"), "1") == Floats{10, 12, 14, -16});
  }
  TestCheckpoint zeros = of_channels;
  zeros.tensors.push_back(
      {kExampleModule + ".weight_zero_point", "I8", {2, 2, 1}, Hex("00 01 02 fe")});
  CHECK(DecodeExpert(zeros, "1") == Floats{0.75F, 1, 4.5F, -3});
  for (const std::string name : {"2", "x", "01x", ""}) {
    TempFolder temp;
    of_channels.Write(temp.path());
    const Checkpoint source = Value(Checkpoint::Open(temp.path()));
    DecodedRows decoded;
    CheckError(Value(SecondDecoder::Make(source, "compressed-tensors"))
                   .Decode(kExampleModule + "." + name, 2, 0, 2, decoded),
               ErrorKind::kUnsupported, "does not find its codes");
  }
}

TEST_CASE("static activations and bias are read") {
  TempFolder temp;
  CtStored({}, {{"input_scale", "BF16", {1}, Hex("003f")},
                {"input_zero_point", "I8", {1}, Hex("fd")},
                {"bias", "F16", {2}, Hex("003c 00c0")}})
      .Write(temp.path());
  const Checkpoint source = Value(Checkpoint::Open(temp.path()));
  const SecondDecoder decoder = Value(SecondDecoder::Make(source, "compressed-tensors"));
  const DecodedInput input = Value(decoder.ReadInput(kExampleModule));
  CHECK(input.scale == 0.5);
  CHECK(input.zero_point == -3);
  std::vector<double> bias;
  RequireOk(decoder.ReadBias(kExampleModule, bias));
  CHECK(bias == std::vector<double>{1, -2});
  CheckError(decoder.ReadBias("no.such", bias), ErrorKind::kUnsupported, "no.such.bias");
  CheckError(decoder.ReadInput("no.such").status(), ErrorKind::kUnsupported, "no.such.input_scale");
}

TEST_CASE("what the second decoder cannot decode is an error") {
  TempFolder temp;
  SymmetricExample().Write(temp.path());
  const Checkpoint source = Value(Checkpoint::Open(temp.path()));
  CheckError(SecondDecoder::Make(source, "no-such").status(), ErrorKind::kUnsupported,
             "no second decoder");
  const SecondDecoder decoder = Value(SecondDecoder::Make(source, "compressed-tensors"));
  DecodedRows decoded;
  CheckError(decoder.Decode("no.such", 16, 0, 1, decoded), ErrorKind::kUnsupported,
             "module no.such: the second decoder does not find its codes and scales");
  CheckError(decoder.Decode(kExampleModule, 24, 0, 1, decoded), ErrorKind::kMalformed, "disagree");
  CheckError(decoder.Decode(kExampleModule, 17, 0, 1, decoded), ErrorKind::kMalformed, "disagree");
  CHECK_FALSE(decoder.Decode(kExampleModule, 16, 3, 2, decoded).ok());  // past the last row
}

TEST_CASE("codes, scales and zero points that the second decoder does not know are named") {
  const auto with = [](const std::string& dtype, const std::string& scale_dtype,
                       const std::vector<uint64_t>& scale_shape) {
    return CtStored(
        {}, {{"weight", dtype, {2, 2}, Hex(dtype == "BF16" ? "0000000000000000" : "00000000")},
             {"weight_scale", scale_dtype, scale_shape, Hex("0000803f")}});
  };
  CheckError(StatusOf(with("BF16", "F32", {1}), "fp8", 2), ErrorKind::kUnsupported,
             "does not know this kind of codes (found BF16)");
  CheckError(StatusOf(with("I8", "I32", {1}), "fp8", 2), ErrorKind::kUnsupported,
             "does not read numbers of this dtype (found I32)");
  CheckError(StatusOf(with("I8", "F32", {1, 1, 1}), "fp8", 2), ErrorKind::kUnsupported,
             "takes matrices only");
  CheckError(StatusOf(with("I8", "BF16", {1, 2}), "fp8", 2), ErrorKind::kMalformed, "disagree");
  TestCheckpoint packed_zeros = with("I8", "BF16", {2, 1});
  packed_zeros.tensors.push_back(
      {kExampleModule + ".weight_zero_point", "I32", {1, 1}, Hex("00000000")});
  CheckError(StatusOf(packed_zeros, "fp8", 2), ErrorKind::kUnsupported,
             "packed zero points for codes that are not packed");
  CheckError(StatusOf(CtStored({}, {{"weight", "I8", {1, 6}, Hex("000000000000")},
                                    {"weight_scale", "BF16", {1, 4}, Hex("803f803f803f803f")}}),
                      "compressed-tensors", 6),
             ErrorKind::kMalformed, "disagree (found 4 groups of 6 input channels)");
  TestCheckpoint stacked = with("I8", "F32", {1});
  stacked.At(kExampleModule + ".weight").shape = {1, 2, 2};
  CheckError(StatusOf(stacked, "fp8", 2), ErrorKind::kUnsupported, "takes matrices only");
}

TEST_CASE("what the second decoder of GPTQ cannot decode is an error") {
  const std::string name = "model.layers.0.mlp.up_proj";
  const Checkpoint source = Value(Checkpoint::Open(Fixture("checkpoints/gptqmodel-w4-sym-g128")));
  const SecondDecoder decoder = Value(SecondDecoder::Make(source, "gptq"));
  DecodedRows decoded;
  CheckError(decoder.Decode("no.such", 384, 0, 1, decoded), ErrorKind::kUnsupported,
             "no.such.qweight");
  CheckError(decoder.Decode(name, 385, 0, 1, decoded), ErrorKind::kMalformed, "disagree");
  CheckError(decoder.Decode(name, 384, 1536, 1, decoded), ErrorKind::kMalformed,
             "not a matrix of the expected size");
  TestCheckpoint no_matrix = SmallGptqCheckpoint({{"sym", false}}, "");
  no_matrix.At(kExampleModule + ".qzeros").shape = {2};
  CheckError(StatusOf(no_matrix, "gptq", 8), ErrorKind::kMalformed,
             "qzeros: shapes of codes, scales and zero points disagree");
}

TEST_CASE("codes of gemv_fast that do not come in whole turns of 64 inputs are refused") {
  const auto with = [](uint64_t k) {
    return CtStored(
        {{"group_size", 32}},
        {{"qweight", "I16", {1, k}, std::vector<std::byte>(2 * k)},
         {"scales", "F16", {k / 32, 4}, std::vector<std::byte>(k / 32 * 8, std::byte{0x3C})},
         {"qzeros", "F16", {k / 32, 4}, std::vector<std::byte>(k / 32 * 8)}});
  };
  CHECK(StatusOf(with(64), "awq", 64).ok());
  CheckError(StatusOf(with(32), "awq", 32), ErrorKind::kMalformed, "disagree");
}

}  // namespace
}  // namespace prepack::testing
