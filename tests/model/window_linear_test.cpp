// A window of a module is those channels of it, whatever way it is read.

#include "prepack/model/window_linear.h"

#include <string>
#include <vector>

#include "catch.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

constexpr const char* kDown = "model.layers.1.mlp.experts.2.down_proj";

struct OpenedWindow {
  explicit OpenedWindow(const std::string& name)
      : checkpoint(Value(Checkpoint::Open(Fixture("checkpoints/" + name)))),
        model(Value(ReadQuantizedModel(checkpoint))) {}

  Checkpoint checkpoint;
  QuantizedModel model;
};

TEST_CASE("codes, scales and places of a window are those of the whole") {
  const OpenedWindow opened("ct-int8-moe");
  const QuantizedLinear& whole = *opened.model.Find(kDown);
  REQUIRE(whole.n() == 64);
  REQUIRE(whole.k() == 128);
  const PanelRange range{.n0 = 16, .rows = 32, .k0 = 64, .cols = 64};
  const auto window = Value(TakeWindow(whole, "w", range));
  CHECK(window->module() == "w");
  CHECK(window->n() == 32);
  CHECK(window->k() == 64);
  CHECK(window->groups() == 1);
  CHECK(window->scheme().group_size == 64);
  CHECK(window->source_bytes() == whole.source_bytes() / 4);
  CHECK(window->source_tensors() == whole.source_tensors());

  std::vector<std::byte> of_whole(10 * 16);
  std::vector<std::byte> of_window(10 * 16);
  RequireOk(whole.ReadCodes({.n0 = 21, .rows = 10, .k0 = 96, .cols = 16}, of_whole));
  RequireOk(window->ReadCodes({.n0 = 5, .rows = 10, .k0 = 32, .cols = 16}, of_window));
  CHECK(of_window == of_whole);
  std::vector<float> scales_of_whole(3);
  std::vector<float> scales_of_window(3);
  RequireOk(whole.ReadScales(18, 3, scales_of_whole));
  RequireOk(window->ReadScales(2, 3, scales_of_window));
  CHECK(scales_of_window == scales_of_whole);
  std::vector<uint8_t> zero_points(3, 7);
  RequireOk(window->ReadZeroPoints(2, 3, zero_points));
  CHECK(zero_points == std::vector<uint8_t>(3, ZeroOfSymmetric(whole.scheme())));
  CHECK(Value(window->CountStrayBits()) == 0);

  REQUIRE(window->places() != nullptr);
  CHECK(window->places()->WhereCode(3, 9) == whole.places()->WhereCode(19, 73));
  CHECK(window->places()->WhereScale(3, 0) == whole.places()->WhereScale(19, 0));
  CHECK(window->places()->WhereZeroPoint(3, 0).empty());
  // The byte of (19, 73) is near that weight; that of (63, 127) is in no weight of the window.
  const PanelRange near = window->places()->CodesNear(19 * 128 + 73);
  CHECK((near.n0 <= 3 && 3 < near.n0 + near.rows));
  CHECK((near.k0 <= 9 && 9 < near.k0 + near.cols));
  CHECK(window->places()->CodesNear(63 * 128 + 127).rows == 0);
}

TEST_CASE("a window of all input channels is used where it lies") {
  const OpenedWindow opened("ct-int8-moe");
  const QuantizedLinear& whole = *opened.model.Find(kDown);
  const auto rows = Value(TakeWindow(whole, "w", {.n0 = 16, .rows = 16, .k0 = 0, .cols = 128}));
  const auto found = rows->FindCodes({.n0 = 2, .rows = 4, .k0 = 0, .cols = 128});
  REQUIRE(found.has_value());
  CHECK(found->offset == 18 * 128);
  const auto half = Value(TakeWindow(whole, "w", {.n0 = 0, .rows = 64, .k0 = 0, .cols = 64}));
  CHECK_FALSE(half->FindCodes({.n0 = 0, .rows = 4, .k0 = 0, .cols = 64}).has_value());
}

TEST_CASE("a window ends where its module ends") {
  const OpenedWindow opened("ct-int8-moe");
  const QuantizedLinear& whole = *opened.model.Find(kDown);
  const auto window = Value(TakeWindow(whole, "w", {.n0 = 0, .rows = 32, .k0 = 64, .cols = 64}));
  std::vector<std::byte> codes(64);
  CHECK(window->ReadCodes({.n0 = 32, .rows = 1, .k0 = 0, .cols = 64}, codes).kind() ==
        ErrorKind::kUsage);
  std::vector<float> scales(1);
  CHECK(window->ReadScales(32, 1, scales).kind() == ErrorKind::kUsage);
  std::vector<uint8_t> zero_points(1);
  CHECK(window->ReadZeroPoints(32, 1, zero_points).kind() == ErrorKind::kUsage);
}

TEST_CASE("what cannot be a window is refused") {
  const OpenedWindow opened("ct-int8-moe");
  const QuantizedLinear& whole = *opened.model.Find(kDown);
  for (const PanelRange& range : {PanelRange{.n0 = 0, .rows = 0, .k0 = 0, .cols = 128},
                                  PanelRange{.n0 = 1, .rows = 64, .k0 = 0, .cols = 128},
                                  PanelRange{.n0 = 0, .rows = 64, .k0 = 65, .cols = 64},
                                  PanelRange{.n0 = UINT64_MAX, .rows = 2, .k0 = 0, .cols = 64}}) {
    CheckError(TakeWindow(whole, "w", range).status(), ErrorKind::kUnsupported,
               "cannot become a module of their own");
  }
  const OpenedWindow groups("ct-nested-moe");
  const QuantizedLinear& grouped =
      *groups.model.Find("language_model.model.layers.1.mlp.experts.0.up_proj");
  REQUIRE(grouped.groups() == 2);
  CheckError(TakeWindow(grouped, "w", {.n0 = 0, .rows = 16, .k0 = 0, .cols = grouped.k()}).status(),
             ErrorKind::kUnsupported, "cannot become a module of their own");
}

}  // namespace
}  // namespace prepack::testing
