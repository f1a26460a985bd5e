#pragma once

#include <stdexcept>
#include <string>

// The exit codes mean what they mean for prepack itself.
enum class Exit : int {
  kGood = 0,
  kWrongResult = 1,
  kUsage = 2,
  kMalformed = 3,
  kSystem = 4,
  kUnavailable = 6,  // the folder is sound, but does not suit this oneDNN or this CPU
};

// The program throws this when it cannot use a folder. what() is the whole error message.
class Refusal : public std::runtime_error {
 public:
  Refusal(Exit code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Exit code() const { return code_; }

 private:
  Exit code_;
};

inline Refusal Malformed(const std::string& where, const std::string& what) {
  return {Exit::kMalformed, where + ": " + what};
}
