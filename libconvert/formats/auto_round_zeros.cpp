#include "formats/auto_round_zeros.h"

#include <fmt/format.h>

#include "formats/auto_round_module.h"
#include "formats/finding.h"
#include "formats/gptq_evidence.h"

namespace prepack {
namespace {

// The first release whose calibration-free exports store what their label says.
constexpr VersionNumber kHonestSince = {0, 16};

GptqZeros Labelled(const AutoRoundConfig& config) {
  return config.packing.packing == AutoRoundPacking::kGptqMinusOne ? GptqZeros::kMinusOne
                                                                   : GptqZeros::kStored;
}

// All modules that can be read. What is wrong with the others is found out when they are described.
GptqZeroSample SampleModel(const Checkpoint& checkpoint, const std::vector<ModuleTensors>& modules,
                           const AutoRoundConfig& config, const AutoRoundMatcher& matcher) {
  GptqZeroSample sample;
  FindingTally ignored;
  for (const ModuleTensors& module : modules) {
    if (module.Find("qweight") == nullptr) continue;
    const Result<GptqSettings> settings = AutoRoundGptqSettings(
        checkpoint, module, config, matcher.SchemeOf(module.name), Labelled(config));
    if (!settings.ok() || !DescribeGptqModule(checkpoint, module, *settings, ignored).ok())
      continue;
    const Result<GptqZeroSample> one = SampleGptqZeros(checkpoint, module, *settings);
    if (one.ok()) sample += *one;
  }
  return sample;
}

}  // namespace

AutoRoundZeros ChooseAutoRoundZeros(const Checkpoint& checkpoint,
                                    const std::vector<ModuleTensors>& modules,
                                    const AutoRoundConfig& config,
                                    const AutoRoundMatcher& matcher) {
  AutoRoundZeros chosen{.zeros = Labelled(config), .contradicts = ""};
  // No export says "auto_round:gptqmodel" of itself: that is how a user says that z is stored.
  if (!config.model_free || config.packing.name != "auto_round") return chosen;
  const GptqZeroSample sample = SampleModel(checkpoint, modules, config, matcher);
  if (const std::optional<GptqZeros> told = ConventionOf(sample)) {
    if (*told == GptqZeros::kStored) return chosen;
    chosen.contradicts = DescribeGptqZeroSample(sample);
  } else if (config.version && config.version->IsBefore(kHonestSince)) {
    chosen.contradicts = fmt::format("AutoRound {} stored them so", ShowVersion(*config.version));
  } else {
    return chosen;
  }
  chosen.zeros = GptqZeros::kMinusOne;
  return chosen;
}

}  // namespace prepack
