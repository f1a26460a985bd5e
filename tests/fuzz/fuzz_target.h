#pragma once

// What every fuzz target shares. A target is one file of this folder: it defines Run(), which is
// given bytes and must come back, whatever they are. libFuzzer calls it with bytes that it makes up
// (tools/fuzz), ctest with those of fixtures/fuzz/TARGET (replay.cpp).

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "prepack/base/status.h"

// libFuzzer's entry point; 0: the input may become part of the corpus.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace prepack::fuzz {

// Ends the process where something does not hold that must hold for every input.
inline void Demand(bool holds, std::string_view what, std::string_view details = "") {
  if (holds) return;
  std::fprintf(stderr, "fuzz: not so: %.*s\n%.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(details.size()), details.data());
  std::abort();
}

// An error in an input is the input's: broken or not supported, said in words that can be shown.
inline void DemandGoodError(const Status& status) {
  if (status.ok()) return;
  const bool blames_input =
      status.kind() == ErrorKind::kMalformed || status.kind() == ErrorKind::kUnsupported;
  const std::string text = status.ToString();
  Demand(blames_input, "an error says that the input is broken or not supported", text);
  Demand(!status.what().empty() && !status.where().empty(), "an error says where and what", text);
  Demand(text.size() < 10'000, "an error is short", text);
  Demand(std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; }),
         "an error has no control characters", text);
}

// Takes values from the front of the input, and zeros where it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }
  bool Bool() { return (Byte() & 1U) != 0; }
  uint16_t U16() {
    const uint8_t low = Byte();
    return static_cast<uint16_t>(low | Byte() << 8);
  }
  uint64_t U64() {
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; ++i) value |= uint64_t{Byte()} << 8 * i;
    return value;
  }
  // In 0 … bound − 1, of which there are at most 65,536.
  size_t Below(size_t bound) { return (bound <= 256 ? Byte() : U16()) % bound; }
  // In least … most.
  size_t Between(size_t least, size_t most) { return least + Below(most - least + 1); }
  template <typename T, size_t kCount>
  T OneOf(const T (&values)[kCount]) {
    return values[Below(kCount)];
  }

  // Text up to the next NUL, which goes, too, or to the end.
  std::string_view TextToNul() {
    const std::string_view all = Text();
    const std::string_view text = all.substr(0, all.find('\0'));
    rest_ = rest_.subspan(std::min(rest_.size(), text.size() + 1));
    return text;
  }
  // What is left.
  std::string_view Text() const {
    return {reinterpret_cast<const char*>(rest_.data()), rest_.size()};
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace prepack::fuzz
