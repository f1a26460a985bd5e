#ifndef PREPACK_FORMATS_PLAIN_MODULES_H_
#define PREPACK_FORMATS_PLAIN_MODULES_H_

// Linear layers in floating point that the config wants quantized.
//
// Configs speak of a whole model, and quantizers work through some of its lists of layers: the
// decoder, rarely a vision or audio tower. A config that does not exclude the tower all the same
// is how GPTQModel writes every multimodal model. So a plain layer is a surprise only where other
// layers of its list were quantized.

#include <string_view>
#include <utility>
#include <vector>

#include "formats/finding_tally.h"
#include "formats/format.h"

namespace prepack {

class PlainModules {
 public:
  // Views into the checkpoint, and a literal.
  void Add(std::string_view module, std::string_view message) {
    modules_.emplace_back(module, message);
  }

  // Reports those in whose list of layers a module is quantized. What lies in no list (projectors,
  // pooling heads) counts as one list; the output head is left out, which is declared by itself.
  void Report(const QuantizedModel& model, FindingTally& findings) const;

 private:
  std::vector<std::pair<std::string_view, std::string_view>> modules_;
};

}  // namespace prepack

#endif  // PREPACK_FORMATS_PLAIN_MODULES_H_
