#include "prepack/packed/small_parts.h"

#include "catch.h"
#include "formats/checkpoint_builder.h"
#include "model/fixed_linear.h"
#include "prepack/layouts/table.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

// A checkpoint that holds one bias, and a module of three output and two input channels.
class Example {
 public:
  Example(const std::string& dtype, std::vector<std::byte> bytes, uint64_t count = 3)
      : linear_({.code = CodeType::kS8, .bits = 8, .group_size = 2}, 3, 2, {}, {}, {}, {1, 0}) {
    TestCheckpoint checkpoint;
    checkpoint.tensors = {{"m.bias", dtype, {count}, std::move(bytes)}};
    checkpoint.Write(folder_.path());
    Result<Checkpoint> opened = Checkpoint::Open(folder_.path());
    REQUIRE(opened.ok());
    checkpoint_ = std::make_unique<Checkpoint>(*std::move(opened));
    linear_.SetModule("m");
    linear_.SetInput({.scale = 0.5F, .zero_point = -3});
  }

  Status Bytes(const PartSpec& part, PageBuffer& out) const {
    return SmallPartBytes(*checkpoint_, linear_, kVllmWna16, part, out);
  }
  std::vector<std::byte> BytesOf(PartRole role, DType dtype) const {
    PageBuffer out(2, std::byte{0xFF});  // left over from another part
    const Status status = Bytes({.role = role, .name = "x", .dtype = dtype, .shape = {3}}, out);
    INFO(status.ToString());
    REQUIRE(status.ok());
    return {out.begin(), out.end()};
  }

 private:
  TempFolder folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
  FixedLinear linear_;
};

TEST_CASE("a bias is converted to the dtype that the kernel takes") {
  const Example bf16("BF16", Hex("80 3f  00 c0  81 3f"));  // 1 −2 1.0078125
  CHECK(bf16.BytesOf(PartRole::kBias, DType::kBF16) == Hex("80 3f  00 c0  81 3f"));
  CHECK(bf16.BytesOf(PartRole::kBias, DType::kF32) == Hex("00 00 80 3f  00 00 00 c0  00 00 81 3f"));
  CHECK(bf16.BytesOf(PartRole::kBias, DType::kF16) == Hex("00 3c  00 c0  08 3c"));
  // 1 + 2^-8 lies halfway between two bf16 numbers: the even one is 1.
  const Example f32("F32", Hex("00 80 80 3f  00 80 81 3f  00 00 00 00"));
  CHECK(f32.BytesOf(PartRole::kBias, DType::kBF16) == Hex("80 3f  82 3f  00 00"));
  const Example f16("F16", Hex("00 3c  01 00  00 c0"));
  CHECK(f16.BytesOf(PartRole::kBias, DType::kF32) == Hex("00 00 80 3f  00 00 80 33  00 00 00 c0"));
}

TEST_CASE("a bias that would become infinite is refused with its place") {
  const Example f32("F32", Hex("00 00 80 3f  00 50 c3 47  00 00 00 00"));  // 100000
  PageBuffer out;
  const Status status =
      f32.Bytes({.role = PartRole::kBias, .name = "bias", .dtype = DType::kF16, .shape = {3}}, out);
  REQUIRE_FALSE(status.ok());
  CHECK(status.kind() == ErrorKind::kUnsupported);
  CHECK_THAT(status.ToString(), Catch::Contains("tensor m.bias") &&
                                    Catch::Contains("F16 cannot represent element 1") &&
                                    Catch::Contains("found 100000"));
}

TEST_CASE("a bias of another length is refused") {
  const Example wrong("BF16", Hex("80 3f 80 3f"), 2);
  PageBuffer out;
  const Status status = wrong.Bytes(
      {.role = PartRole::kBias, .name = "bias", .dtype = DType::kF32, .shape = {3}}, out);
  REQUIRE_FALSE(status.ok());
  CHECK(status.kind() == ErrorKind::kMalformed);
  CHECK_THAT(status.ToString(), Catch::Contains("expected [3]"));
}

TEST_CASE("a bias that is not finite is refused with its place") {
  for (const char* bytes : {"80 3f 80 7f 80 3f", "80 3f 80 ff 80 3f", "80 3f c0 7f 80 3f"}) {
    CAPTURE(bytes);
    const Example wrong("BF16", Hex(bytes));
    PageBuffer out;
    const Status status = wrong.Bytes(
        {.role = PartRole::kBias, .name = "bias", .dtype = DType::kF32, .shape = {3}}, out);
    REQUIRE_FALSE(status.ok());
    CHECK(status.kind() == ErrorKind::kMalformed);
    CHECK_THAT(status.ToString(), Catch::Contains("tensor m.bias: element 1 is not finite"));
  }
}

TEST_CASE("the order of inputs and the static scale of activations are parts") {
  const Example example("BF16", Hex("80 3f 80 3f 80 3f"));
  CHECK(example.BytesOf(PartRole::kInputOrder, DType::kI32) == Hex("01 00 00 00 00 00 00 00"));
  CHECK(example.BytesOf(PartRole::kInputScale, DType::kF32) == Hex("00 00 00 3f"));
  CHECK(example.BytesOf(PartRole::kInputZeroPoint, DType::kI32) == Hex("fd ff ff ff"));
  PageBuffer out;
  CHECK(example
            .Bytes({.role = PartRole::kScale, .name = "s", .dtype = DType::kF32, .shape = {3}}, out)
            .kind() == ErrorKind::kUsage);
}

}  // namespace
}  // namespace prepack::testing
