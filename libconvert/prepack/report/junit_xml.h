#pragma once

// JUnit XML, which CI systems show: the elements and attributes that Jenkins' schema, GitLab and
// the actions for GitHub have in common.

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace prepack {

// All texts are escaped when they are written. Lines: none of them holds the end of its line.
struct JUnitFailure {
  std::string type;
  std::string message;             // the first thing that a user sees
  std::vector<std::string> lines;  // all of it
};

struct JUnitCase {
  std::string class_name;
  std::string name;
  std::optional<JUnitFailure> failure;
  std::optional<std::string> skipped;  // why; only without a failure
  std::vector<std::string> output;     // lines
};

struct JUnitSuite {
  std::string name;
  std::vector<JUnitCase> cases;
};

// For a case about all that the others are about: `name`, or "the NAME itself" when one of them has
// it already. Two cases of one name are one to what shows them.
std::string NameOfWhole(std::string name, std::span<const JUnitCase> others);

std::string JUnitXml(std::span<const JUnitSuite> suites);

}  // namespace prepack
