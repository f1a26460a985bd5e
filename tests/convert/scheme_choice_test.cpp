#include "prepack/convert/scheme_choice.h"

#include "catch.h"

namespace prepack::testing {
namespace {

SchemeChoice Parse(std::string_view text) {
  Result<SchemeChoice> choice = ParseSchemeChoice(text);
  INFO(choice.status().ToString());
  REQUIRE(choice.ok());
  return *std::move(choice);
}

Scheme FourBits() {
  return {.code = CodeType::kU4, .bits = 4};
}

ActivationScheme StaticInt8() {
  return {.type = ActivationType::kInt,
          .bits = 8,
          .symmetric = false,
          .dynamic = false,
          .granularity = ActivationGranularity::kTensor};
}

TEST_CASE("a scheme option is a scheme, or a pattern and a scheme") {
  CHECK(Parse("w4a8").scheme == WantedScheme::kW4A8);
  CHECK(Parse("w4a8").pattern.empty());
  const SchemeChoice of_pattern = Parse("mlp\\.(gate|up)=w8a16");
  CHECK(of_pattern.pattern == "mlp\\.(gate|up)");
  CHECK(of_pattern.scheme == WantedScheme::kW8A16);
  CHECK(of_pattern.Text() == "--scheme mlp\\.(gate|up)=w8a16");
  CHECK(Parse("a=b=auto").pattern == "a=b");  // the last "=" counts
}

TEST_CASE("a scheme option that cannot be read is a usage error") {
  const Status unknown = ParseSchemeChoice("w4a9").status();
  CHECK(unknown.kind() == ErrorKind::kUsage);
  CHECK(unknown.ToString() ==
        "--scheme: unknown scheme (found w4a9, expected "
        "[PATTERN=]auto|w4a16|w4a8|w8a8|w8a16|bf16). Did you mean w4a8?");
  CHECK(ParseSchemeChoice("=w4a8").status().kind() == ErrorKind::kUsage);
  const std::vector<SchemeChoice> choices = {{.pattern = "(", .scheme = WantedScheme::kW4A8}};
  const Status pattern = SchemeChooser::Make(choices, *FindTarget("onednn")).status();
  CHECK(pattern.kind() == ErrorKind::kUsage);
  CHECK_THAT(pattern.ToString(), Catch::Contains("--scheme (=w4a8"));
}

TEST_CASE("a scheme says what activations are for weights of its width only") {
  const Scheme four = FourBits();
  CHECK(ActivationsFor(four, WantedScheme::kW4A16) == ActivationScheme{});
  const auto w4a8 = ActivationsFor(four, WantedScheme::kW4A8);
  REQUIRE(w4a8);
  CHECK((w4a8->type == ActivationType::kInt && w4a8->bits == 8 && w4a8->symmetric &&
         w4a8->dynamic && w4a8->granularity == ActivationGranularity::kToken));
  CHECK_FALSE(ActivationsFor(four, WantedScheme::kW8A8));
  CHECK_FALSE(ActivationsFor(four, WantedScheme::kW8A16));
  CHECK_FALSE(ActivationsFor({.code = CodeType::kU4, .bits = 3}, WantedScheme::kW4A16));
  CHECK(ActivationsFor({.code = CodeType::kU4, .bits = 3}, WantedScheme::kBF16) ==
        ActivationScheme{});

  Scheme eight = {.code = CodeType::kS8, .bits = 8};
  CHECK(ActivationsFor(eight, WantedScheme::kW8A8)->dynamic);
  eight.activations = StaticInt8();
  CHECK(ActivationsFor(eight, WantedScheme::kW8A8) == StaticInt8());  // as the checkpoint says
  CHECK(ActivationsFor(eight, WantedScheme::kAuto) == StaticInt8());
  CHECK(ActivationsFor(eight, WantedScheme::kW8A16) == ActivationScheme{});
  CHECK_FALSE(ActivationsFor(eight, WantedScheme::kW4A8));

  Scheme fp8 = {.code = CodeType::kF8E4M3, .bits = 8};
  fp8.activations = {.type = ActivationType::kFloat, .bits = 8};
  CHECK(ActivationsFor(fp8, WantedScheme::kAuto) == ActivationScheme{});
  CHECK(ActivationsFor(fp8, WantedScheme::kW8A8)->type == ActivationType::kFloat);
}

TEST_CASE("experts of four bits get what the runtime's op for them computes with") {
  const auto bits_of = [](std::string_view target, std::vector<SchemeChoice> choices,
                          std::string_view module, const Scheme& weights) {
    Result<SchemeChooser> chooser = SchemeChooser::Make(choices, *FindTarget(target));
    REQUIRE(chooser.ok());
    const Result<Arithmetic> arithmetic = chooser->ArithmeticOf(module, weights);
    REQUIRE(arithmetic.ok());
    return arithmetic->activations.type == ActivationType::kNone ? 16U
                                                                 : arithmetic->activations.bits;
  };
  const std::string expert = "model.layers.0.mlp.experts.3.up_proj";
  for (const char* target : {"vllm-cpu", "zentorch"}) {
    CHECK(bits_of(target, {}, expert, FourBits()) == 8);
    CHECK(bits_of(target, {Parse("auto")}, expert, FourBits()) == 8);
    CHECK(bits_of(target, {Parse("experts=w4a16")}, expert, FourBits()) == 16);
    CHECK(bits_of(target, {}, "model.layers.0.mlp.shared_experts.up_proj", FourBits()) == 16);
    Scheme mxfp4 = FourBits();
    mxfp4.code = CodeType::kF4E2M1;
    CHECK(bits_of(target, {}, expert, mxfp4) == 16);
  }
  CHECK(bits_of("onednn", {}, expert, FourBits()) == 16);
}

TEST_CASE("the last option that fits decides") {
  const std::vector<SchemeChoice> choices = {Parse("w4a8"), Parse("attn=w4a16"),
                                             Parse("k_proj=w8a8")};
  Result<SchemeChooser> chooser = SchemeChooser::Make(choices, *FindTarget("onednn"));
  REQUIRE(chooser.ok());
  const auto bits_of = [&](std::string_view module) {
    const Result<Arithmetic> arithmetic = chooser->ArithmeticOf(module, FourBits());
    REQUIRE(arithmetic.ok());
    return arithmetic->activations.type == ActivationType::kNone ? 16U
                                                                 : arithmetic->activations.bits;
  };
  CHECK(bits_of("model.layers.0.mlp.up_proj") == 8);
  CHECK(bits_of("model.layers.0.self_attn.q_proj") == 16);
  CHECK(bits_of("model.layers.0.self_attn.k_proj") == 16);  // w8a8 is not for four bits
  const Status unused = chooser->CheckAllWereUsed();
  CHECK(unused.kind() == ErrorKind::kUsage);
  CHECK(unused.ToString() ==
        "--scheme k_proj=w8a8: matches no module of the checkpoint (expected a pattern that "
        "matches modules with weights of 8 bits). `prepack inspect` lists the modules and their "
        "schemes");
}

TEST_CASE("bf16 is for weights of any width, until another option decides") {
  const std::vector<SchemeChoice> choices = {Parse("bf16"), Parse("attn=w4a8"), Parse("lm=bf16")};
  Result<SchemeChooser> chooser = SchemeChooser::Make(choices, *FindTarget("onednn"));
  REQUIRE(chooser.ok());
  Scheme eight = {.code = CodeType::kS8, .bits = 8};
  eight.activations = StaticInt8();
  const Arithmetic bf16{.activations = {}, .in_bf16 = true};
  CHECK(*chooser->ArithmeticOf("mlp.up_proj", FourBits()) == bf16);
  CHECK(*chooser->ArithmeticOf("mlp.up_proj", eight) == bf16);
  CHECK(*chooser->ArithmeticOf("attn.k_proj", eight) == bf16);  // w4a8 is not for eight bits
  const Arithmetic four = *chooser->ArithmeticOf("attn.k_proj", FourBits());
  CHECK_FALSE(four.in_bf16);
  CHECK(four.activations.bits == 8);
  CHECK(chooser->CheckAllWereUsed().ToString() ==
        "--scheme lm=bf16: matches no module of the checkpoint (expected a pattern that matches "
        "modules). `prepack inspect` lists the modules and their schemes");
}

}  // namespace
}  // namespace prepack::testing
