#include "prepack/layouts/kt_experts.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>

#include "prepack/layouts/rules.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

Eligibility ExpertOfMixture(const PackRequest& request) {
  if (request.expert()) return Eligibility::Yes();
  return Eligibility::No(
      "the module is not an expert: kt-kernel runs the experts of a mixture, and the rest of the "
      "model runs elsewhere, from the original checkpoint");
}

Eligibility Named(const PackRequest& request) {
  if (!request.unnamed) return Eligibility::Yes();
  return Eligibility::No(
      "kt-kernel has no name for it: it knows gate_proj, up_proj and down_proj (w1, w3, w2) of the "
      "experts of a decoder's layers, each expert by itself");
}

Eligibility WholeMixture(const PackRequest& request) {
  switch (request.mixture_fault) {
    case MixtureFault::kNone:
      break;
    case MixtureFault::kIncomplete:
      return Eligibility::No(
          "another expert of the layer cannot be packed, or is missing: kt-kernel reads all "
          "experts of a layer or none");
    case MixtureFault::kOtherLayout:
      return Eligibility::No(
          "other experts of the model have codes of another width: kt-kernel reads all with one "
          "method, AMXINT8 or AMXINT4");
  }
  return Eligibility::Yes();
}

Eligibility NoBias(const PackRequest& request) {
  if (!request.bias_dtype) return Eligibility::Yes();
  return Eligibility::No("the module has a bias: the kernel adds none");
}

// What a module is to kt-kernel.
struct KtExpert {
  uint64_t layer = 0;
  std::string_view projection;
  uint64_t expert = 0;
  uint64_t node = 0;
};

constexpr auto kProjections = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"gate_proj", "gate"},
    {"up_proj", "up"},
    {"down_proj", "down"},
    {"w1", "gate"},
    {"w3", "up"},
    {"w2", "down"},
});

std::optional<KtExpert> ParseKtExpert(std::string_view module) {
  const NodeShare share = ParseNodeShare(module);
  const auto expert = ParseExpertName(share.module);
  if (!expert || expert->stored_stacked || !IsDecoderModule(share.module)) return std::nullopt;
  const auto* const projection = std::ranges::find(kProjections, expert->projection,
                                                   &decltype(kProjections)::value_type::first);
  if (projection == kProjections.end()) return std::nullopt;
  return KtExpert{.layer = ParseLayerName(share.module)->index,
                  .projection = projection->second,
                  .expert = expert->index,
                  .node = share.node};
}

}  // namespace

uint64_t KtDivisible(const KtForm& form, const PackRequest& request) {
  if (request.k <= kKtBlockInputs) return kKtStepRows;
  return request.n % form.block_rows == 0 ? form.block_rows : request.n;
}

Eligibility KtTakes(const KtForm& form, const PackRequest& request, const Eligibility& codes,
                    const Eligibility& scales) {
  return AllOf({
      ExpertOfMixture(request),
      codes,
      SymmetricWeights(request),
      DynamicInt8Activations(request),
      scales,
      MultipleOf("N", request.n, kKtStepRows, "packed in steps of 32 output channels"),
      MultipleOf("K", request.k, form.tile_inputs(),
                 fmt::format("packed {} input channels at a time", form.tile_inputs())),
      InputsInOrder(request),
      NoBias(request),
      ActivationsOneOf(request, {DType::kBF16}),
      Named(request),
      WholeMixture(request),
  });
}

Eligibility WithHint(Eligibility verdict, std::string_view hint) {
  if (verdict.ok || hint.empty()) return verdict;
  if (!verdict.kernel_reads.empty()) {
    verdict.kernel_reads = fmt::format("{}. {}", verdict.kernel_reads, hint);
  }
  verdict.reason = fmt::format("{}. {}", verdict.reason, hint);
  return verdict;
}

bool IsNamedByKt(std::string_view module) {
  return ParseKtExpert(module).has_value();
}

std::string KtTensorName(std::string_view module, const PartSpec& part) {
  const std::optional<KtExpert> name = ParseKtExpert(module);
  if (!name) return fmt::format("{}.{}", module, part.name);
  return fmt::format("blk.{}.ffn_{}_exps.{}.numa.{}.{}", name->layer, name->projection,
                     name->expert, name->node, part.role == PartRole::kScale ? "scale" : part.name);
}

}  // namespace prepack
