#include "prepack/gemm/onednn/fields.h"

#include <limits>

#include "catch.h"
#include "status_matchers.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::Value;

// BA16a64b4a of 100 × 70 weights: 128 × 128 elements.
OneDnnFields Blocked(uint64_t rows_of_sums) {
  return {.dims = {70, 100},
          .padded_dims = {128, 128},
          .strides = {4096, 8192},
          .inner_sizes = {16, 64, 4},
          .inner_dims = {0, 1, 0},
          .bytes = 128 * 128 + rows_of_sums * 128 * 4,
          .implementation = "brg_matmul:avx512_core_vnni"};
}

Result<BlockedDesc> Explain(const OneDnnFields& fields) {
  return WeightsDescOf(fields, 70, 100);
}

Result<BlockedDesc> Explain(const OneDnnFields& fields, const OneDnnFields& without) {
  return WeightsDescOf(fields, without, 70, 100);
}

void CheckRefused(const OneDnnFields& fields, std::string_view text) {
  const Result<BlockedDesc> desc = Explain(fields);
  CheckError(desc.status(), ErrorKind::kUnsupported, text);
  CheckError(desc.status(), ErrorKind::kUnsupported, "--onednn-form plain");
  CheckError(Explain(fields, Blocked(0)).status(), ErrorKind::kUnsupported, text);
}

TEST_CASE("the fields of a blocked form are its descriptor") {
  const BlockedDesc desc = Value(Explain(Blocked(0)));
  CHECK(desc == Ba16a64b4aDesc(70, 100));
  CHECK(desc.Name() == "BA16a64b4a");
}

TEST_CASE("sums without zero points are those of signed activations") {
  BlockedDesc wanted = Ba16a64b4aDesc(70, 100);
  wanted.s8s8_compensation = true;
  CHECK(Value(Explain(Blocked(1))) == wanted);
  CheckError(Explain(Blocked(2)).status(), ErrorKind::kUnsupported, "at most 1 rows of 128 sums");
}

TEST_CASE("whose sums they are shows in what is asked for without zero points") {
  BlockedDesc wanted = Ba16a64b4aDesc(70, 100);
  CHECK(Value(Explain(Blocked(0), Blocked(0))) == wanted);
  CHECK(Value(Explain(Blocked(0), Blocked(1))) == wanted);

  wanted.zero_point_compensation = true;
  CHECK(Value(Explain(Blocked(1), Blocked(0))) == wanted);
  wanted.s8s8_compensation = true;
  CHECK(Value(Explain(Blocked(2), Blocked(1))) == wanted);
  CHECK(Value(Explain(Blocked(2), Blocked(0))) == wanted);
  wanted.zero_point_compensation = false;
  CHECK(Value(Explain(Blocked(1), Blocked(1))) == wanted);
}

// Its kernel multiplies signed activations as they are: no sums without zero points, in narrower
// blocks.
TEST_CASE("with AMX one row of sums is for zero points") {
  OneDnnFields fields = Blocked(1);
  OneDnnFields without = Blocked(0);
  without.inner_sizes = {16, 32, 4};
  without.strides = {2048, 4096};
  without.implementation = fields.implementation = "brg_matmul:avx10_1_512_amx";
  BlockedDesc wanted = Ba16a64b4aDesc(70, 100);
  wanted.zero_point_compensation = true;
  CHECK(Value(Explain(fields, without)) == wanted);
}

TEST_CASE("one row of sums that another form does not explain is refused") {
  OneDnnFields without = Blocked(1);
  without.implementation = "brg_matmul:avx10_1_512_amx";
  CheckError(Explain(Blocked(1), without).status(), ErrorKind::kUnsupported,
             "it has one row of sums, which may be for signed activations or for zero points");
  without = Blocked(1);
  without.strides = {8192, 4096};
  CheckError(Explain(Blocked(1), without).status(), ErrorKind::kUnsupported, "one row of sums");
  CheckError(Explain(Blocked(1), Blocked(2)).status(), ErrorKind::kUnsupported,
             "17408 bytes for 16384 elements and at most 1 rows");
  CheckError(Explain(Blocked(3), Blocked(1)).status(), ErrorKind::kUnsupported,
             "17920 bytes for 16384 elements and at most 2 rows of 128 sums");
}

TEST_CASE("what is no blocked form of these weights is refused with the reason") {
  OneDnnFields fields = Blocked(0);
  fields.blocked = false;
  CheckRefused(fields, "it is not a blocked form");
  fields = Blocked(0);
  fields.s8 = false;
  CheckRefused(fields, "its elements are not s8");
  fields = Blocked(0);
  fields.offset = 64;
  CheckRefused(fields, "it begins at element 64");
  fields = Blocked(0);
  fields.dims = {70};
  CheckRefused(fields, "its dimensions are [70]");
  fields = Blocked(0);
  fields.padded_dims = {128, 128, 1};
  CheckRefused(fields, "its padded dimensions are [128, 128, 1]");
  fields = Blocked(0);
  fields.strides = {std::numeric_limits<int64_t>::min(), 8192};  // known at run time only
  CheckRefused(fields, "its strides are [-9223372036854775808, 8192]");
  fields = Blocked(0);
  fields.inner_dims = {0, 1};
  CheckRefused(fields, "its inner blocks are [16, 64, 4] along [0, 1]");
  fields = Blocked(0);
  fields.inner_sizes = {16, -64, 4};
  CheckRefused(fields, "its inner blocks are [16, -64, 4] along [0, 1, 0]");
  fields = Blocked(0);
  fields.inner_dims = {0, 1, 2};
  CheckRefused(fields, "an inner block lies along dimension 2");
  fields = Blocked(0);
  fields.inner_sizes.assign(9, 1);
  fields.inner_dims.assign(9, 0);
  CheckRefused(fields, "its inner blocks are [1, 1, 1, 1, 1, 1, 1, 1, 1] along");
  fields = Blocked(0);
  fields.dims = {71, 100};
  CheckRefused(fields, "field \"dims\" is not usable (found [71, 100], expected [70, 100])");
  fields = Blocked(0);
  fields.strides = {4096, 16384};
  CheckRefused(fields, "field \"strides\" is not usable");
  fields = Blocked(0);
  fields.bytes -= 1;
  CheckRefused(fields, "it has 16383 bytes for 16384 elements");
}

}  // namespace
}  // namespace prepack
