#include "prepack/tune/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace prepack {
namespace {

constexpr size_t kMostChoices = size_t{1} << 16;
constexpr double kTinyPart = 1e-6;

// A choice for the first kinds: the option of the last of them, and the choice for those before it.
struct PartialChoice {
  TuneOption sum;
  size_t before = 0;  // place in the list of the kind before
  size_t option = 0;
};

bool IsCheaper(const PartialChoice& a, const PartialChoice& b) {
  return std::tie(a.sum.cost, a.sum.noise, a.sum.tie) <
         std::tie(b.sum.cost, b.sum.noise, b.sum.tie);
}

// Keeps what nothing beats: cheapest first, and each with less noise than all before it, by `step`
// of theirs.
void KeepBest(std::vector<PartialChoice>& choices, double step) {
  std::ranges::sort(choices, IsCheaper);
  double least = std::numeric_limits<double>::infinity();
  const auto beaten = [&](const PartialChoice& choice) {
    const bool better = choice.sum.noise < least * (1 - step);
    if (better) least = choice.sum.noise;
    return !better;
  };
  choices.erase(std::remove_if(choices.begin(), choices.end(), beaten), choices.end());
}

std::vector<PartialChoice> AddKind(const std::vector<PartialChoice>& before,
                                   const std::vector<TuneOption>& options) {
  std::vector<PartialChoice> choices;
  choices.reserve(before.size() * options.size());
  for (size_t i = 0; i < before.size(); ++i) {
    for (size_t option = 0; option < options.size(); ++option) {
      const TuneOption& sum = before[i].sum;
      const TuneOption& added = options[option];
      choices.push_back({.sum = {.cost = sum.cost + added.cost,
                                 .noise = sum.noise + added.noise,
                                 .tie = sum.tie + added.tie},
                         .before = i,
                         .option = option});
    }
  }
  KeepBest(choices, 0);
  if (choices.size() > kMostChoices) KeepBest(choices, kTinyPart);
  return choices;
}

}  // namespace

std::optional<std::vector<size_t>> ChooseOptions(std::span<const std::vector<TuneOption>> kinds,
                                                 const std::optional<double>& most) {
  std::vector<std::vector<PartialChoice>> steps = {{PartialChoice{}}};
  for (const std::vector<TuneOption>& options : kinds) {
    steps.push_back(AddKind(steps.back(), options));
  }
  // Cheapest first, with ever less noise: the first that is good enough is the answer.
  const std::vector<PartialChoice>& all = steps.back();
  const auto chosen = std::ranges::find_if(
      all, [&](const PartialChoice& choice) { return !most || choice.sum.noise <= *most; });
  if (chosen == all.end()) return std::nullopt;
  std::vector<size_t> places(kinds.size());
  const PartialChoice* choice = &*chosen;
  for (size_t kind = kinds.size(); kind-- > 0;) {
    places[kind] = choice->option;
    choice = &steps[kind][choice->before];
  }
  return places;
}

double NoiseOfDecibel(double decibel) {
  return std::pow(10.0, -decibel / 10);
}

double DecibelOfNoise(double noise) {
  return -10 * std::log10(noise);
}

}  // namespace prepack
