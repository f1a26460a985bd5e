#pragma once

// A program that answers questions: a JSON object in a line for each, on its standard input and
// output. What it writes to its standard error is kept, to be quoted when it fails.

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json.h"

namespace prepack {

struct ChildCommand {
  std::vector<std::string> arguments;  // the program's path first
  // Variables that it has besides those of this process.
  std::vector<std::pair<std::string, std::string>> environment = {};
};

class Child {
 public:
  static Result<Child> Start(const ChildCommand& command);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  // Ends it: its input is closed, and if that does not help, it is killed.
  ~Child();

  // The answer. kUnavailable when it ends or says nothing for so long, with the last that it wrote
  // to its standard error; kMalformed when the answer is no JSON object or longer than 1 MiB.
  Result<Json> Ask(const Json& question, double seconds);

 private:
  Child(pid_t process, int channel, int errors, std::string name)
      : process_(process), channel_(channel), errors_(errors), name_(std::move(name)) {}

  Status Send(const std::string& line);
  Result<std::string> ReadLine(double seconds);
  Status Failure(std::string_view what) const;
  std::string LastError() const;

  pid_t process_;
  int channel_;  // its input and output
  int errors_;   // a file in memory
  std::string name_;
  std::string received_;  // beyond the last answer
};

}  // namespace prepack
