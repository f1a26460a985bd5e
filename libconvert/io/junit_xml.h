#ifndef PREPACK_IO_JUNIT_XML_H_
#define PREPACK_IO_JUNIT_XML_H_

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

std::string JUnitXml(std::span<const JUnitSuite> suites);

}  // namespace prepack

#endif  // PREPACK_IO_JUNIT_XML_H_
