#pragma once

#include <fstream>
#include <map>
#include <string>

#include "catch.h"
#include "temp_folder.h"

namespace prepack::testing {

// fixtures/plans.txt, which plan_table_test.cpp writes and holds the plans against.
class PlannedLayouts {
 public:
  using Layouts = std::map<std::string, size_t>;  // layout → modules that it takes

  PlannedLayouts() {
    std::ifstream file(Fixture("plans.txt"));
    Layouts* current = nullptr;
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with(' ')) {
        current = &plans_[line];
        continue;
      }
      const size_t number = line.find_first_not_of(' ');
      const size_t fate = line.find(' ', number) + 1;
      const std::string layout = line.substr(fate, line.find_first_of("; ", fate) - fate);
      if (layout == "kept:") continue;
      (*current)[layout] += std::stoul(line.substr(number));
    }
    REQUIRE_FALSE(plans_.empty());
  }

  // With --dtype bf16 --fallback dequantize. A plan that is that of fewer options is listed there.
  Layouts Of(const std::string& checkpoint, const std::string& target) const {
    const std::string plain = checkpoint + " --target " + target;
    for (const char* options : {" --dtype bf16 --fallback dequantize", " --fallback dequantize"}) {
      if (const auto plan = plans_.find(plain + options); plan != plans_.end()) return plan->second;
    }
    return plans_.at(plain);
  }

 private:
  std::map<std::string, Layouts> plans_;
};

}  // namespace prepack::testing
